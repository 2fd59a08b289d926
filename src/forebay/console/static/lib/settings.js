// Where the value of a setting comes from, in words.
import { html } from "./dom.js";
import { Badge } from "./ui.js";

const SOURCES = {
  DYNAMIC_TOPIC_CONFIG: "this topic",
  DYNAMIC_BROKER_CONFIG: "this broker",
  DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
  STATIC_BROKER_CONFIG: "file or command line",
  DEFAULT_CONFIG: "default",
};

/** `own`: the source that stands out, because it is of the thing that the page shows. */
export function Source({ row, own }) {
  return html`<${Badge} tone=${row.source === own ? "info" : "plain"}>${SOURCES[row.source] ?? row.source.toLowerCase()}<//>`;
}
