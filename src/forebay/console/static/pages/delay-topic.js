// The messages of one topic that wait: when each is due; firing and cancelling them.
import { html, useEffect, useState } from "../lib/dom.js";
import { href, route, setQuery } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { change, isReadOnly } from "../lib/change.js";
import { Button, Card, Dialog, Empty, Loaded, PageHead, Stat, toast } from "../lib/ui.js";
import { Table } from "../lib/table.js";
import { Bytes, Contents } from "../lib/contents.js";
import { bytes, count, duration, moment, plural } from "../lib/format.js";

/** in 3 h, counted down every second. */
export function TimeLeft({ due }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const left = Math.ceil((due - now) / 1000) * 1000;
  return html`<span title=${moment(due)}>${left <= 0 ? "now" : `in ${duration(left)}`}</span>`;
}

export default function DelayTopic({ cluster, rest }) {
  const [topic] = rest;
  const base = `${cluster}/delays/${encodeURIComponent(topic)}`;
  const state = useData(base, {}, { live: true });
  const [chosen, setChosen] = useState(new Set());
  const rows = state.data?.rows ?? [];
  const ids = rows.map((row) => row.id).filter((id) => chosen.has(id));
  const act = (verb, body) =>
    change(`${base}/${verb}`, body).then(
      (done) => {
        if (!done) return;
        setChosen(new Set());
        setQuery({ id: "" });
        state.reload();
      },
      (error) => toast(error.message, "severe"),
    );
  return html`<${PageHead} title=${topic} crumbs=${[{ text: "Delayed messages", href: href(cluster, ["delays"]) }]}>
      <a class="button" href=${href(cluster, ["topics", topic])}>Topic</a>
      ${!isReadOnly() && rows.length > 0 &&
      html`<${Button} onClick=${() => act("fire", ids.length ? { ids } : { all: true })}>${ids.length ? `Fire ${ids.length}` : "Fire all"}<//>
        <${Button} kind="danger-quiet" onClick=${() => act("cancel", ids.length ? { ids } : { all: true })}>${ids.length ? `Cancel ${ids.length}` : "Cancel all"}<//>`}
    <//>
    <${Loaded} state=${state}>
      ${(data) => html`<${Waiting} data=${data} chosen=${chosen} onChoose=${setChosen} act=${act} />`}
    <//>
    ${route.value.query.id && html`<${Message} base=${base} id=${route.value.query.id} act=${act} />`}`;
}

function Waiting({ data, chosen, onChoose, act }) {
  if (!data.rows.length) return html`<${Empty} title="Nothing waits in this topic."><p>What was due is delivered.</p><//>`;
  const most = Math.max(...data.due.map((each) => each.count), 1);
  const toggle = (id) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    onChoose(next);
  };
  const columns = [
    ...(isReadOnly() ? [] : [{ key: "choose", title: html`<span class="visually-hidden">Choose</span>`, render: (row) => html`<input type="checkbox" aria-label=${`Choose ${row.id}`} checked=${chosen.has(row.id)} onChange=${() => toggle(row.id)} />` }]),
    { key: "id", title: "Message", render: (row) => html`<button type="button" class="link strong" onClick=${() => setQuery({ id: row.id }, { replace: false })}>${row.id}</button>` },
    { key: "left", title: "Due", number: true, render: (row) => html`<${TimeLeft} due=${row.due_ms} />` },
    { key: "at", title: "At", wide: true, render: (row) => html`<span class="quiet-text">${moment(row.due_ms)}</span>` },
    { key: "key", title: "Key", render: (row) => html`<${Bytes} message=${row} name="key" />` },
    { key: "size", title: "Size", number: true, wide: true, render: (row) => bytes(row.value_bytes) },
    { key: "act", title: html`<span class="visually-hidden">Fire or cancel</span>`, number: true, wide: true, render: (row) => !isReadOnly() && html`<${Button} kind="quiet small" label=${`Fire ${row.id}`} onClick=${() => act("fire", { ids: [row.id] })}>Fire<//><${Button} kind="quiet small" label=${`Cancel ${row.id}`} onClick=${() => act("cancel", { ids: [row.id] })}>Cancel<//>` },
  ];
  return html`<div class="stats">
      <${Stat} label="Waiting" value=${count(data.waiting)} hint="messages" />
      <${Stat} label="Next" value=${html`<${TimeLeft} due=${data.rows[0].due_ms} />`} hint=${moment(data.rows[0].due_ms)} />
    </div>
    <${Card} title="Due" actions=${data.counted < data.waiting && html`<span class="quiet-text">the next ${count(data.counted)}</span>`}>
      <ol class="bars">${data.due.map((each) => html`<li key=${each.name}><span>${each.name}</span><span>${count(each.count)}</span><meter min="0" max=${most} value=${each.count} aria-hidden="true"></meter></li>`)}</ol>
    <//>
    <${Table} columns=${columns} data=${data} keyOf=${(row) => row.id} label="Delayed messages" />
    ${data.waiting > data.rows.length && html`<p class="quiet-text table-note">The next ${count(data.rows.length)} of ${plural(data.waiting, "message")}.</p>`}`;
}

function Message({ base, id, act }) {
  const state = useData(`${base}/message`, { id });
  const close = () => setQuery({ id: "" });
  return html`<${Dialog} title=${`Message ${id}`} onClose=${close} wide>
    <${Loaded} state=${state} rows=${4}>
      ${(message) => html`<dl class="facts">
          <dt>Due</dt><dd>${moment(message.due_ms)} (<${TimeLeft} due=${message.due_ms} />)</dd>
          <dt>Sent</dt><dd>${moment(message.scheduled_ms)}</dd>
          <dt>Schedule key</dt><dd><${Bytes} message=${message} name="schedule_key" /></dd>
        </dl>
        <${Contents} message=${message} />
        <div class="dialog-actions">
          <${Button} onClick=${close}>Close<//>
          ${!isReadOnly() && html`<${Button} kind="danger-quiet" onClick=${() => act("cancel", { ids: [id] })}>Cancel the message<//><${Button} kind="primary" onClick=${() => act("fire", { ids: [id] })}>Fire now<//>`}
        </div>`}
    <//>
  <//>`;
}
