// One event stream for all tabs of a user, because browsers open only six connections to a server.
// Each tab is a port: it registers the replies it follows and receives their events and the change
// notices.

const kinds = ["snapshot", "block", "rest", "delta", "state", "refresh", "done"];
const shortestWait = 1000;
const longestWait = 60_000;
// Several notices can have the same time, so those of this many milliseconds are sent again.
const overlap = 1000;
const mostNotices = 100;
// A stream follows this many replies, as on the server. Others wait until one of them has ended.
const mostReplies = 20;

export class Switchboard {
  constructor(address) {
    this.address = address;
    // Replies followed by each tab.
    this.tabs = new Map();
    // All followed replies, in the order in which a tab last began to follow them.
    this.order = new Set();
    // Last event of each reply: ID and position in its text.
    this.places = new Map();
    this.notices = [];
    // Notices since this time are in the list, and the newest one received.
    this.from = Infinity;
    this.since = 0;
    this.wait = shortestWait;
  }

  hear(port, { hello, follow, leave, bye }) {
    if (hello) this.join(port, hello);
    if (follow && this.tabs.has(port)) {
      this.tabs.get(port).add(follow);
      this.order.delete(follow);
      this.order.add(follow);
    }
    if (leave) this.tabs.get(port)?.delete(leave);
    if (bye) this.tabs.delete(port);
    // A new follower gets a reply from its beginning, so all followers do.
    if (follow || !this.source || !this.tabs.size) this.openIn(0);
  }

  join(port, drawn) {
    this.tabs.set(port, new Set());
    port.postMessage({ hello: true });
    if (drawn < this.from) {
      // The page is older than all known notices: the server sends them again.
      this.from = drawn;
      this.since = drawn;
      this.openIn(0);
    }
    for (const notice of this.notices) if (notice.at > drawn) port.postMessage(notice);
  }

  openIn(milliseconds) {
    clearTimeout(this.opening);
    this.opening = setTimeout(() => this.open(), milliseconds);
  }

  open() {
    this.source?.close();
    this.source = null;
    if (!this.tabs.size) return;
    const followed = new Set([...this.tabs.values()].flatMap((turns) => [...turns]));
    const query = new URLSearchParams({ since: this.since });
    for (const turn of this.order) if (!followed.has(turn)) this.order.delete(turn);
    // The reply to the newest message is among them.
    const heard = [...this.order].slice(-mostReplies);
    this.waiting = followed.size - heard.length;
    for (const turn of heard) query.append("turn", this.places.get(turn) ?? turn);
    for (const turn of this.places.keys()) if (!followed.has(turn)) this.places.delete(turn);
    const source = new EventSource(`${this.address}?${query}`);
    this.source = source;
    for (const turn of heard) {
      for (const kind of kinds) source.addEventListener(`${turn}.${kind}`, (event) => this.pass(turn, kind, event));
    }
    source.addEventListener("changed", ({ data }) => this.notice(JSON.parse(data)));
    source.addEventListener("lost", () => this.tell({ lost: true }));
    for (const end of ["server.restarting", "server.resume"]) {
      source.addEventListener(end, () => {
        // An announced end is not a connection loss: no tab has to ask for changes.
        source.close();
        this.openIn(shortestWait);
      });
    }
    source.onopen = () => {
      if (this.isBroken) this.tell({ lost: true });
      this.isBroken = false;
      this.wait = shortestWait;
    };
    source.onerror = () => this.fail(source);
  }

  pass(turn, kind, { data, lastEventId }) {
    if (lastEventId.startsWith(turn)) this.places.set(turn, lastEventId);
    for (const [port, turns] of this.tabs) if (turns.has(turn)) port.postMessage({ turn, kind, data });
    if (kind !== "done") return;
    this.places.delete(turn);
    for (const turns of this.tabs.values()) turns.delete(turn);
    if (this.waiting) this.openIn(0);
  }

  notice({ chat, at }) {
    this.since = Math.max(this.since, at - overlap);
    this.notices.push({ changed: chat, at });
    if (this.notices.length > mostNotices) this.from = this.notices.shift().at + 1;
    this.tell({ changed: chat, at });
  }

  tell(message) {
    for (const port of this.tabs.keys()) port.postMessage(message);
  }

  fail(source) {
    source.close();
    if (source !== this.source) return;
    this.isBroken = true;
    this.openIn(this.wait);
    this.wait = Math.min(this.wait * 2, longestWait);
  }
}
