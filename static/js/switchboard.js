// One event stream for all tabs of a person, since a browser opens only six connections to a
// server. A tab is a port: it says which replies it follows, and is told their events and which
// chats changed.

const kinds = ["snapshot", "block", "rest", "delta", "state", "refresh", "done"];
const shortestWait = 1000;
const longestWait = 60_000;
// Clocks of several servers differ a little: so many milliseconds are told again.
const overlap = 1000;
const mostNotices = 100;

export class Switchboard {
  constructor(address) {
    this.address = address;
    // The replies that each tab follows.
    this.tabs = new Map();
    // The last event of each reply: its id, and the place in its text.
    this.places = new Map();
    this.notices = [];
    // The notices from this time on are in the list, and the newest that were heard.
    this.from = Infinity;
    this.since = 0;
    this.wait = shortestWait;
  }

  hear(port, { hello, follow, leave, bye }) {
    if (hello) this.join(port, hello);
    if (follow) this.tabs.get(port)?.add(follow);
    if (leave) this.tabs.get(port)?.delete(leave);
    if (bye) this.tabs.delete(port);
    // Whoever follows a reply gets it from its beginning: then all do.
    if (follow || !this.source || !this.tabs.size) this.openIn(0);
  }

  join(port, drawn) {
    this.tabs.set(port, new Set());
    port.postMessage({ hello: true });
    if (drawn < this.from) {
      // This page was drawn before all that is known here: the server tells it again.
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
    for (const turn of followed) query.append("turn", this.places.get(turn) ?? turn);
    for (const turn of this.places.keys()) if (!followed.has(turn)) this.places.delete(turn);
    const source = new EventSource(`${this.address}?${query}`);
    this.source = source;
    for (const turn of followed) {
      for (const kind of kinds) source.addEventListener(`${turn}.${kind}`, (event) => this.pass(turn, kind, event));
    }
    source.addEventListener("changed", ({ data }) => this.notice(JSON.parse(data)));
    source.addEventListener("lost", () => this.tell({ lost: true }));
    for (const end of ["server.restarting", "server.resume"]) {
      source.addEventListener(end, () => {
        // An end that was announced is no break: nothing is lost, and no tab has to ask.
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
