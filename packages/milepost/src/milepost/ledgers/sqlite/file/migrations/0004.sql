-- Items by the second part of their key, such as an asset's batch. Keys of one part are not in it.
CREATE INDEX item_second_part ON item (route, substr(key, instr(key, '#') + 1)) WHERE instr(key, '#') > 0;
