// Moments in the reader's own time; UTC when pointed at.
const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function times(part) {
  for (const time of part.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    time.title = `${time.dateTime} (UTC)`;
    time.textContent = format.format(moment);
  }
}
