// Times in the reader's time zone; UTC as a tooltip. A time that is shown as a span (data-span) keeps its text, and has both as a tooltip.
const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function times(part) {
  for (const time of part.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    const local = format.format(moment);
    const utc = `${time.dateTime} (UTC)`;
    const span = "span" in time.dataset;
    time.title = span ? `${local}; ${utc}` : utc;
    if (!span) time.textContent = local;
  }
}
