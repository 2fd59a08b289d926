// The letters of one topic: where each came from and why; one of them; moving them back, with a preview.
import { html, useState } from "../lib/dom.js";
import { href, route, setQuery } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { change, isReadOnly } from "../lib/change.js";
import { Badge, Button, Card, Dialog, Empty, Field, Loaded, Loading, PageHead, Search, Trouble } from "../lib/ui.js";
import { Table } from "../lib/table.js";
import { Contents } from "../lib/contents.js";
import { ago, count, moment, plural } from "../lib/format.js";

const FILTERS = ["group", "source", "reason", "since"];

export default function DeadLetterTopic({ cluster, rest }) {
  const [topic] = rest;
  const base = `${cluster}/dead-letters/${encodeURIComponent(topic)}`;
  const query = route.value.query;
  const chosen = Object.fromEntries(FILTERS.map((name) => [name, query[name] ?? ""]));
  const state = useData(`${base}/letters`, chosen);
  const [moving, setMoving] = useState(null);
  const done = (happened) => {
    setMoving(null);
    if (happened) state.reload();
  };
  return html`<${PageHead} title=${topic} crumbs=${[{ text: "Dead letters", href: href(cluster, ["dead-letters"]) }]}>
      <a class="button" href=${href(cluster, ["topics", topic])}>Topic</a>
      <${Button} onClick=${state.reload} disabled=${state.loading}>Refresh<//>
      ${!isReadOnly() && html`<${Button} kind="primary" onClick=${() => setMoving({})} disabled=${!state.data?.matching}>Redrive …<//>`}
    <//>
    <div class="toolbar">
      <${Search} name="reason" placeholder="Search reasons" />
      <${Choice} name="group" title="All groups" options=${state.data?.groups} />
      <${Choice} name="source" title="All sources" options=${state.data?.sources} />
      <select aria-label="Since" class="narrow" value=${query.since ?? ""} onChange=${(event) => setQuery({ since: event.target.value })}>
        <option value="">any time</option><option value="10m">last 10 minutes</option><option value="1h">last hour</option><option value="1d">last day</option><option value="7d">last week</option>
      </select>
    </div>
    <${Loaded} state=${state} rows=${8}>${(data) => html`<${Letters} data=${data} onMove=${(at) => setMoving({ at })} filtered=${FILTERS.some((name) => chosen[name])} />`}<//>
    ${query.at && html`<${Letter} cluster=${cluster} base=${base} at=${query.at} onMove=${(at) => setMoving({ at })} />`}
    ${moving && html`<${Redrive} base=${base} topic=${topic} chosen=${moving.at ? { at: moving.at } : chosen} onClose=${done} />`}`;
}

/** A filter by the values that there are. What was chosen stays even if nothing has it now. */
function Choice({ name, title, options = [] }) {
  const value = route.value.query[name] ?? "";
  const names = [...new Set([value, ...options.map((each) => each.name)])].filter(Boolean);
  return html`<select class="narrow" aria-label=${title} value=${value} onChange=${(event) => setQuery({ [name]: event.target.value })}>
    <option value="">${title}</option>
    ${names.map((each) => html`<option value=${each} key=${each}>${each}</option>`)}
  </select>`;
}

function Letters({ data, onMove, filtered }) {
  if (!data.rows.length) {
    return filtered
      ? html`<${Empty} title="No letter is like that."><p>Change the filter.</p><//>`
      : html`<${Empty} title="No dead letters here."><p>Nothing was given up. That is good.</p><//>`;
  }
  const most = data.reasons[0]?.count ?? 1;
  const columns = [
    { key: "at", title: "Letter", render: (row) => html`<button type="button" class="link strong" onClick=${() => setQuery({ at: row.at }, { replace: false })}>${row.at}</button>` },
    { key: "when", title: "When", render: (row) => html`<span title=${moment(row.timestamp)}>${ago(row.timestamp)}</span>` },
    { key: "reason", title: "Reason", render: (row) => row.reason ?? html`<span class="quiet-text">none given</span>` },
    { key: "source", title: "From", wide: true, render: (row) => html`${row.source.topic}<span class="quiet-text">-${row.source.partition}@${count(row.source.offset)}</span>` },
    { key: "group", title: "Given up by", wide: true, render: (row) => row.group ?? "–" },
    { key: "deliveries", title: "Deliveries", number: true, wide: true, render: (row) => count(row.deliveries) },
    { key: "redriven", title: html`<span class="visually-hidden">Redrive</span>`, number: true, render: (row) => (row.redriven ? html`<${Badge} tone="good">moved back<//>` : !isReadOnly() && html`<${Button} kind="quiet small" label=${`Redrive ${row.at}`} onClick=${() => onMove(row.at)}>Redrive<//>`) },
  ];
  return html`<${Card} title="Reasons" actions=${html`<span class="quiet-text">${plural(data.matching, "letter")}${data.read_all ? "" : ` among the newest of ${count(data.kept)}`}</span>`}>
      <ol class="bars">
        ${data.reasons.map((each) => html`<li key=${each.name}><button type="button" class="link" onClick=${() => setQuery({ reason: each.name === "no reason given" ? "" : each.name })}>${each.name}</button><span>${count(each.count)}</span><meter min="0" max=${most} value=${each.count} aria-hidden="true"></meter></li>`)}
      </ol>
    <//>
    <${Table} columns=${columns} data=${data} keyOf=${(row) => row.at} label="Dead letters" />
    ${data.matching > data.rows.length && html`<p class="quiet-text table-note">The newest ${count(data.rows.length)} of ${count(data.matching)}.</p>`}`;
}

function Letter({ cluster, base, at, onMove }) {
  const state = useData(`${base}/letter`, { at });
  const close = () => setQuery({ at: "" });
  return html`<${Dialog} title=${`Letter ${at}`} onClose=${close} wide>
    <${Loaded} state=${state} rows=${4}>
      ${(letter) => html`<dl class="facts">
          <dt>Reason</dt><dd>${letter.reason ?? "none given"}</dd>
          <dt>When</dt><dd>${moment(letter.timestamp)}</dd>
          <dt>From</dt><dd><a href=${href(cluster, ["messages", letter.source.topic], { partition: letter.source.partition, from: letter.source.offset })}>${letter.source.topic}-${letter.source.partition}@${count(letter.source.offset)}</a></dd>
          <dt>Given up by</dt><dd>${letter.group ? html`<a href=${href(cluster, ["share-groups", letter.group])}>${letter.group}</a>` : "–"}</dd>
          <dt>Deliveries</dt><dd>${count(letter.deliveries)}</dd>
        </dl>
        ${letter.copied ? html`<${Contents} message=${letter} />` : html`<p class="banner">The letter has no copy of the message: look at its source. <code>errors.deadletterqueue.copy.record.enable=true</code> keeps copies.</p>`}
        <div class="dialog-actions">
          <${Button} onClick=${close}>Close<//>
          ${!isReadOnly() && html`<${Button} kind="primary" onClick=${() => { close(); onMove(at); }}>Redrive …<//>`}
        </div>`}
    <//>
  <//>`;
}

function Redrive({ base, topic, chosen, onClose }) {
  const [form, setForm] = useState({ to: "", limit: "", include_old: false });
  const [tried, setTried] = useState({});
  const [problem, setProblem] = useState(null);
  const params = { ...chosen, ...tried };
  const state = useData(`${base}/redrive`, params);
  const error = problem ?? state.error;
  const wrong = (field) => (error?.field === field ? error.message : "");
  const set = (patch) => setForm({ ...form, ...patch });
  const settle = () => setTried({ ...form });
  const stale = JSON.stringify({ to: "", limit: "", include_old: false, ...tried }) !== JSON.stringify(form);
  const submit = async (event) => {
    event.preventDefault();
    setProblem(null);
    if (stale) return settle();
    try {
      const done = await change(`${base}/redrive`, params);
      if (done) onClose(done);
    } catch (error) {
      setProblem(error);
    }
  };
  const filter = Object.entries(chosen).filter(([, value]) => value).map(([name, value]) => `${name} ${value}`).join(", ");
  return html`<${Dialog} title=${`Move dead letters of ${topic} back`} onClose=${() => onClose(null)} wide>
    <form class="form" onSubmit=${submit}>
      <p class="wide quiet-text">${filter ? `Only those with ${filter}. ` : "All letters that were not moved yet. "}Each is moved exactly once, to where it came from.</p>
      <${Field} label="To another topic" hint="Empty: back to where each came from." error=${wrong("to")}><input value=${form.to} onInput=${(event) => set({ to: event.target.value.trim() })} onBlur=${settle} autocomplete="off" spellcheck="false" /><//>
      <${Field} label="At most" hint="Empty: all of them." error=${wrong("limit")}><input value=${form.limit} inputmode="numeric" onInput=${(event) => set({ limit: event.target.value.trim() })} onBlur=${settle} autocomplete="off" /><//>
      <label class="toggle wide"><input type="checkbox" checked=${form.include_old} onChange=${(event) => { const next = { ...form, include_old: event.target.checked }; setForm(next); setTried(next); }} /><span>Also letters so old that nobody knows whether they were moved before</span></label>
      <div class="wide preview"><${Preview} state=${state} /></div>
      ${problem && !["to", "limit"].includes(problem.field) && html`<p class="trouble wide" role="alert">${problem.message}</p>`}
      <div class="dialog-actions wide">
        <${Button} onClick=${() => onClose(null)}>Cancel<//>
        <${Button} type="submit" kind="primary" disabled=${state.loading || Boolean(!stale && (state.error || !state.data?.moved))}>${stale ? "Show" : "Continue"}<//>
      </div>
    </form>
  <//>`;
}

function Preview({ state }) {
  if (state.error) return state.error.field ? null : html`<${Trouble} error=${state.error} retry=${state.reload} />`;
  if (!state.data) return html`<${Loading} rows=${3} />`;
  const { moved, rows, left, left_rows: leftRows, notes } = state.data;
  const columns = [
    { key: "at", title: "Letter", render: (row) => row.at },
    { key: "reason", title: "Reason", wide: true, render: (row) => row.reason ?? "–" },
    { key: "arrow", title: "", render: (row) => html`<span aria-hidden="true">${row.why ? "" : "→"}</span>` },
    { key: "to", title: "Goes to", render: (row) => (row.why ? html`<${Badge} tone="warning">stays<//> ${row.why}` : html`<b>${row.to}</b>`) },
  ];
  return html`<p class="preview-head" aria-live="polite">
      ${moved ? html`<b>${plural(moved, "letter")}</b> would be moved${left ? `, ${count(left)} left` : ""}.` : "Nothing to move: every letter like this was moved before, or there is none."}
    </p>
    ${notes.map((note) => html`<p class="banner" key=${note}>${note}</p>`)}
    ${rows.length + leftRows.length > 0 && html`<div class="preview-rows"><${Table} columns=${columns} data=${{ rows: [...leftRows, ...rows] }} keyOf=${(row) => row.at} label="What would be moved" /></div>`}`;
}
