// The shared worker that holds the event stream for all tabs.

import { Switchboard } from "./switchboard.js";

const board = new Switchboard(new URLSearchParams(location.search).get("stream"));

addEventListener("connect", ({ ports: [port] }) => {
  port.onmessage = ({ data }) => board.hear(port, data);
});
