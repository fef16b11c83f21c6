-- What an external stage was offered, kept with the history line that offered it: the item's content may change before the offer is
-- delivered. `same` is the earlier line of the item that offered the same; then there is no body of its own.
CREATE TABLE offer (seq INTEGER PRIMARY KEY, same INTEGER, body BLOB);
INSERT INTO offer (seq, body)
SELECT line.seq, coalesce(
    (SELECT c.body FROM content c JOIN stage s ON s.id = c.stage
     WHERE c.item = line.item AND c.kind = 1 AND s.route = line.route
       AND s.name = coalesce(json_extract(line.text, '$.to'), json_extract(line.text, '$.stage'))),
    (SELECT c.body FROM content c WHERE c.item = line.item AND c.kind = 0 AND c.stage = 0))
FROM (SELECT h.seq, h.item, coalesce(i.route, d.route) AS route, CAST(h.body AS TEXT) AS text
      FROM history h LEFT JOIN item i ON i.id = h.item LEFT JOIN departed d ON d.item = h.item) AS line
WHERE line.text LIKE '%"offered":"%' AND json_valid(line.text);
