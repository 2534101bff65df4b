"""A script that records long tasks and layout shifts of a page."""

OBSERVE_SHIFTS = """
window.tasks = [];
window.shifts = [];
window.paints = [];
new PerformanceObserver((list) => list.getEntries().forEach((entry) => tasks.push(entry.duration)))
  .observe({ type: "longtask", buffered: true });
new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
  // One that enters or leaves the screen was scrolled: the page follows the end of a reply.
  const stayed = entry.sources.filter(({ previousRect: old, currentRect: now }) =>
    old.width && now.width);
  const moved = stayed.map(({ node, previousRect: old, currentRect: now }) => {
    const part = node?.nodeType === 1 ? node : node?.parentElement;
    return `${part?.outerHTML.slice(0, 60)} ${old.x},${old.y} to ${now.x},${now.y}`;
  });
  const isSeen = moved.length && !entry.hadRecentInput;
  if (isSeen) shifts.push(`${entry.value}: ${moved.join("; ")}`);
})).observe({ type: "layout-shift", buffered: true });
new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
  if (entry.name === "first-contentful-paint") paints.push(entry.startTime);
})).observe({ type: "paint", buffered: true });
// Where the words of each reply stood below its name, whether or not anything was drawn there yet.
window.tops = {};
(function look() {
  const words = document.querySelector("[data-live] > .msg__body");
  if (words) {
    const reply = words.parentElement;
    const top = words.getBoundingClientRect().top - reply.getBoundingClientRect().top;
    (tops[reply.id] ??= new Set()).add(Math.round(top));
  }
  requestAnimationFrame(look);
})();
"""
