// One stream of events per tab. Views say what they want to see; the stream is opened anew when that changes.
import { signal, useEffect, useRef } from "./dom.js";
import { queryText } from "./api.js";

/** The last look at the cluster: {number, t, in, lag, problem}. */
export const look = signal(null);
/** connecting, open or lost. */
export const streamState = signal("connecting");

const wishes = new Set();
let source = null;
let address = "";
let planned = false;

function wantedAddress() {
  const all = [...wishes].filter((wish) => wish.cluster);
  if (!all.length) return "";
  const names = [...new Set(["looks", ...all.flatMap((wish) => wish.sources)])];
  const params = Object.assign({}, ...all.map((wish) => wish.params ?? {}));
  return `/api/${encodeURIComponent(all[0].cluster)}/events${queryText({ sources: names.join(","), ...params })}`;
}

function tell(kind, data) {
  if (kind === "look") look.value = data;
  for (const wish of wishes) wish.on.current[kind]?.(data);
}

function connect() {
  planned = false;
  const wanted = wantedAddress();
  if (wanted === address && source) return;
  source?.close();
  source = null;
  address = wanted;
  if (!wanted) return;
  streamState.value = "connecting";
  source = new EventSource(wanted);
  source.onopen = () => (streamState.value = "open");
  source.onerror = () => (streamState.value = "lost");
  const kinds = new Set(["look", ...[...wishes].flatMap((wish) => Object.keys(wish.on.current))]);
  for (const kind of kinds) source.addEventListener(kind, (event) => tell(kind, JSON.parse(event.data)));
}

function plan() {
  if (planned) return;
  planned = true;
  queueMicrotask(connect);
}

/** See events while a component is shown: useLive(cluster, ["tail"], {topic}, {messages: (data) => ...}). */
export function useLive(cluster, sources, params, on) {
  const handlers = useRef(on);
  handlers.current = on;
  const key = JSON.stringify([cluster, sources, params]);
  useEffect(() => {
    const wish = { cluster, sources, params, on: handlers };
    wishes.add(wish);
    plan();
    return () => {
      wishes.delete(wish);
      plan();
    };
  }, [key]);
}
