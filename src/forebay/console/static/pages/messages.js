// The messages of a topic: newest first, searched on the server, live; one message; sending.
import { html, useEffect, useRef, useState } from "../lib/dom.js";
import { href, route, setQuery } from "../lib/router.js";
import { get, queryText } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { useLive } from "../lib/live.js";
import { isReadOnly } from "../lib/change.js";
import { Badge, Button, Command, Empty, Field, Loading, PageHead, Search, Trouble } from "../lib/ui.js";
import { List, listParams } from "../lib/table.js";
import { bytes, compact, count, moment, plural, rate } from "../lib/format.js";
import { Message, Preview } from "./message.js";
import { Produce } from "./produce.js";

const FILTERS = ["text", "key", "header", "where", "partition", "from", "uncommitted"];
const LIVE_ROWS_MAX = 200;

export default function Messages({ cluster, rest }) {
  const [topic] = rest;
  return topic ? html`<${OfTopic} cluster=${cluster} topic=${topic} key=${topic} />` : html`<${Choose} cluster=${cluster} />`;
}

/** Without a topic: which one? */
function Choose({ cluster }) {
  const state = useData(`${cluster}/topics`, listParams({ sort: route.value.query.sort ?? "-rate" }), { live: true });
  const columns = [
    { key: "name", title: "Topic", sort: true, render: (row) => html`<a class="strong" href=${href(cluster, ["messages", row.name])}>${row.name}</a>` },
    { key: "rate", title: "Coming in", sort: true, number: true, render: (row) => rate(row.rate) },
    { key: "messages", title: "Messages", sort: true, number: true, render: (row) => compact(row.messages) },
  ];
  return html`<${PageHead} title="Messages" />
    <div class="toolbar"><${Search} placeholder="Which topic?" /></div>
    <${List} state=${state} columns=${columns} keyOf=${(row) => row.name} label="Topics" empty=${html`<${NoTopics} cluster=${cluster} all=${state.data?.all} />`} />`;
}

function NoTopics({ cluster, all }) {
  if (all) return html`<${Empty} title="No topic is like that."><p>Change the search.</p><//>`;
  return html`<${Empty} title="No topics yet."><p>Messages live in topics. <a href=${href(cluster, ["topics"])}>Create one</a>, or send the first message:</p><${Command} line="echo hello | forebay produce orders" /><//>`;
}

function OfTopic({ cluster, topic }) {
  const query = route.value.query;
  const [sending, setSending] = useState(null);
  const live = query.live === "1";
  const opened = query.at;
  const base = `${cluster}/topics/${encodeURIComponent(topic)}`;
  const params = Object.fromEntries(FILTERS.map((name) => [name, query[name] ?? ""]));
  return html`<${PageHead}
      title="Messages"
      crumbs=${[{ text: "Topics", href: href(cluster, ["topics"]) }, { text: topic, href: href(cluster, ["topics", topic]) }]}
    >
      <${Button} pressed=${live} onClick=${() => setQuery({ live: live ? "" : "1", from: "", at: "" }, { replace: false })}>${live ? "● Live" : "○ Live"}<//>
      <${Export} base=${base} params=${params} />
      ${!isReadOnly() && html`<${Button} kind="primary" onClick=${() => setSending({})}>Send a message<//>`}
    <//>
    <${Filters} live=${live} />
    ${live
      ? html`<${LiveRows} cluster=${cluster} topic=${topic} params=${params} />`
      : html`<${Found} base=${base} params=${params} key=${JSON.stringify(params)} />`}
    ${opened && html`<${Message} cluster=${cluster} topic=${topic} place=${opened} onClose=${() => setQuery({ at: "" })} onCopy=${(draft) => { setQuery({ at: "" }); setSending(draft); }} />`}
    ${sending && html`<${Produce} base=${base} draft=${sending} onClose=${(done) => { setSending(null); if (done && !live) setQuery({ again: Date.now() }); }} />`}`;
}

function Export({ base, params }) {
  const address = (format) => `/api/${base}/export${queryText({ ...params, format, limit: 1000 })}`;
  return html`<a class="button" href=${address("json")} download>JSON</a><a class="button" href=${address("csv")} download>CSV</a>`;
}

// -- filters ----------------------------------------------------------------------------------------------

function Filters({ live }) {
  const query = route.value.query;
  const [open, setOpen] = useState(Boolean(query.key || query.header || query.where || query.uncommitted));
  const submit = (event) => {
    event.preventDefault();
    const form = Object.fromEntries(new FormData(event.target));
    const start = live ? "" : form.start === "newest" ? "" : form.start === "oldest" ? "beginning" : form.from;
    setQuery({ text: form.text, key: form.key ?? query.key, header: form.header ?? query.header, where: form.where ?? query.where, partition: form.partition, from: start, uncommitted: form.uncommitted ? "1" : "", at: "" }, { replace: false });
  };
  const chosen = !query.from ? "newest" : query.from === "beginning" ? "oldest" : "place";
  const [start, setStart] = useState(chosen);
  useEffect(() => setStart(chosen), [chosen]);
  const some = FILTERS.some((name) => query[name]);
  return html`<form class="card filters" onSubmit=${submit} aria-label="Search messages" key=${FILTERS.map((name) => query[name] ?? "").join("\u0000")}>
    <div class="filter-row">
      <${Field} label="Text" wide><input name="text" type="search" defaultValue=${query.text ?? ""} placeholder="in keys, values and headers" spellcheck="false" /><//>
      ${!live && html`<${Field} label="Begin"><select name="start" value=${start} onChange=${(event) => setStart(event.target.value)}>
        <option value="newest">newest first</option><option value="oldest">oldest first</option><option value="place">from a place</option>
      </select><//>`}
      ${!live && start === "place" && html`<${Field} label="Place"><input name="from" required defaultValue=${query.from ?? ""} placeholder="17, 5m, 2026-01-31T12:00" title="An offset, how long ago, or a time" /><//>`}
      <${Field} label="Partition"><input name="partition" defaultValue=${query.partition ?? ""} placeholder="all" class="short" inputmode="numeric" /><//>
      <${Button} type="submit" kind="primary">Search<//>
      <${Button} kind="quiet" onClick=${() => setOpen(!open)} pressed=${open}>More<//>
      ${some && html`<${Button} kind="quiet" onClick=${() => setQuery(Object.fromEntries([...FILTERS, "at"].map((name) => [name, ""])), { replace: false })}>Clear<//>`}
    </div>
    ${open && html`<div class="filter-row">
      <${Field} label="Key"><input name="key" defaultValue=${query.key ?? ""} placeholder="the whole key" spellcheck="false" /><//>
      <${Field} label="Header"><input name="header" defaultValue=${query.header ?? ""} placeholder="name or name=value" spellcheck="false" /><//>
      <${Field} label="Condition in SQL" wide><input name="where" class="mono" defaultValue=${query.where ?? ""} placeholder="value.amount > 100 AND value.currency = 'EUR'" spellcheck="false" /><//>
      ${!live && html`<label class="toggle"><input type="checkbox" name="uncommitted" defaultChecked=${query.uncommitted === "1"} /><span>Also of open and aborted transactions</span></label>`}
    </div>`}
  </form>`;
}

// -- a page at a time -------------------------------------------------------------------------------------

/** Asks for page after page until there are enough rows, or the person stops it. */
function Found({ base, params }) {
  const [state, setState] = useState({ rows: [], cursor: null, examined: 0, running: true, error: null });
  const stopped = useRef(false);
  const again = route.value.query.again;

  const load = async (before, cursor, wanted) => {
    stopped.current = false;
    let rows = before.rows;
    let examined = before.examined;
    let next = cursor;
    setState({ ...before, running: true, error: null });
    try {
      do {
        const page = await get(`${base}/messages`, { ...params, cursor: next, limit: 50 });
        rows = rows.concat(page.rows);
        examined += page.examined;
        next = page.cursor;
        setState({ rows, cursor: next, examined, running: Boolean(next) && rows.length < wanted && !stopped.current, error: null });
      } while (next && rows.length < wanted && !stopped.current);
    } catch (error) {
      setState({ rows, cursor: next, examined, running: false, error });
    }
  };
  useEffect(() => {
    load({ rows: [], examined: 0 }, "", 50);
    return () => (stopped.current = true);
  }, [again]);

  const filtered = ["text", "key", "header", "where"].some((name) => params[name]);
  return html`${state.error && html`<${Trouble} error=${state.error} />`}
    <${Rows} rows=${state.rows} />
    ${!state.rows.length && !state.running && !state.error && html`<${Empty} title=${filtered ? "No message is like that." : "No messages here."}>${filtered && html`<p>${plural(state.examined, "message was", "messages were")} examined.</p>`}<//>`}
    ${!state.rows.length && state.running && !filtered && html`<${Loading} />`}
    <div class="pages">
      ${state.running && filtered && html`<span class="quiet-text" role="status">Searching: ${count(state.examined)} examined …</span><${Button} onClick=${() => (stopped.current = true)}>Stop<//>`}
      ${!state.running && state.cursor && html`<${Button} onClick=${() => load(state, state.cursor, state.rows.length + 50)}>${filtered ? "Search on" : "Show more"}<//>`}
      ${!state.running && !state.cursor && state.rows.length > 0 && html`<span class="quiet-text">That is all.</span>`}
    </div>`;
}

function Rows({ rows }) {
  if (!rows.length) return null;
  const open = (row) => setQuery({ at: `${row.partition}-${row.offset}` }, { replace: false });
  return html`<div class="table-frame" role="region" aria-label="Messages" tabindex="0">
    <table class="messages">
      <thead><tr><th scope="col">Time</th><th scope="col">Place</th><th scope="col">Key</th><th scope="col">Value</th><th scope="col" class="number wide-only">Size</th></tr></thead>
      <tbody>
        ${rows.map(
          (row) => html`<tr key=${`${row.partition}-${row.offset}`} class="clickable" onClick=${(event) => !event.target.closest("a, button") && !String(getSelection()) && open(row)}>
            <td class="when"><${When} ms=${row.timestamp} /></td>
            <td class="place"><button type="button" class="link" onClick=${() => open(row)} aria-label=${`Message ${row.partition}:${row.offset}`}><span class="quiet-text">${row.partition}:</span>${row.offset}</button></td>
            <td class="key"><${Preview} content=${row.key} /></td>
            <td class="preview"><${Preview} content=${row.value} />${row.header_count > 0 && html` <${Badge} title=${row.headers.map(([name]) => name).join(", ")}>${plural(row.header_count, "header")}<//>`}</td>
            <td class="number wide-only">${bytes(row.size)}</td>
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** The date is left out on a phone. */
function When({ ms }) {
  const [date, time] = moment(ms).split(" ");
  return html`<span title=${moment(ms)}><span class="wide-only">${date} </span>${time}</span>`;
}

// -- live -------------------------------------------------------------------------------------------------

function LiveRows({ cluster, topic, params }) {
  const [rows, setRows] = useState([]);
  const [paused, setPaused] = useState(false);
  const [skipped, setSkipped] = useState(0);
  const [problem, setProblem] = useState("");
  const seen = useRef(0);
  const waiting = useRef([]);
  const { text, key, header, where, partition } = params;
  const add = (found) => {
    seen.current += found.length;
    const newest = [...found].reverse();
    if (paused) {
      waiting.current = newest.concat(waiting.current).slice(0, LIVE_ROWS_MAX);
      return;
    }
    setRows((before) => newest.concat(before).slice(0, LIVE_ROWS_MAX));
  };
  useLive(cluster, ["tail"], { tail_topic: topic, text, key, header, where, partition }, {
    messages: (data) => {
      setProblem("");
      setSkipped((before) => before + data.skipped);
      add(data.rows);
    },
    skipped: (data) => setSkipped((before) => before + data.count),
    trouble: (data) => setProblem(data.error),
    tailing: () => setProblem(""),
  });
  const toggle = () => {
    if (paused) {
      setRows((before) => waiting.current.concat(before).slice(0, LIVE_ROWS_MAX));
      waiting.current = [];
    }
    setPaused(!paused);
  };
  useEffect(() => {
    const key = (event) => {
      if (event.key !== " " || event.target.closest("input, textarea, select, button, a, dialog")) return;
      event.preventDefault();
      toggle();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  });
  return html`<div class="toolbar">
      <${Button} onClick=${toggle} pressed=${paused}>${paused ? "Go on" : "Pause"}<//>
      <${Button} kind="quiet" onClick=${() => { setRows([]); setSkipped(0); waiting.current = []; }}>Clear<//>
      <span class="quiet-text" role="status">${paused ? `Paused; ${plural(waiting.current.length, "newer message waits", "newer messages wait")}.` : rows.length ? `The last ${count(rows.length)}.` : "Waiting for the next message …"}${skipped > 0 ? ` ${plural(skipped, "message")} came too fast to be shown.` : ""}</span>
    </div>
    ${problem && html`<p class="trouble" role="alert">${problem}</p>`}
    <${Rows} rows=${rows} />`;
}

