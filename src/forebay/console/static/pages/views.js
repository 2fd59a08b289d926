// Views: topics that show a part of another one. The list, and creating one with a preview of what matches.
import { html, useEffect, useState } from "../lib/dom.js";
import { go, href } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { change, isReadOnly } from "../lib/change.js";
import { Badge, Button, Command, Dialog, Empty, Field, Loading, PageHead, Search, Trouble } from "../lib/ui.js";
import { List, Table, listParams } from "../lib/table.js";
import { Bytes } from "../lib/contents.js";
import { count, moment, plural } from "../lib/format.js";

export default function Views({ cluster }) {
  const state = useData(`${cluster}/views`, listParams());
  const [creating, setCreating] = useState(false);
  const columns = [
    { key: "name", title: "View", sort: true, render: (row) => html`<a class="strong" href=${href(cluster, ["views", row.name])}>${row.name}</a>` },
    { key: "source", title: "Of", sort: true, render: (row) => html`<a href=${href(cluster, ["topics", row.source])}>${row.source}</a>` },
    { key: "kind", title: "Kind", sort: true, render: (row) => html`<${Badge} tone=${row.materialized ? "info" : "plain"}>${row.materialized ? "stored" : "filter"}<//>` },
    { key: "where", title: "Where", wide: true, render: (row) => (row.where ? html`<code>${row.where}</code>` : html`<span class="quiet-text">every message</span>`) },
    { key: "select", title: "Select", wide: true, render: (row) => (row.select ? html`<code>${row.select}</code>` : html`<span class="quiet-text">the value as it is</span>`) },
  ];
  return html`<${PageHead} title="Views">
      ${!isReadOnly() && html`<${Button} kind="primary" onClick=${() => setCreating(true)}>Create view<//>`}
    <//>
    <div class="toolbar">
      <${Search} placeholder="Search views and sources" />
      <span class="quiet-text">${state.data && plural(state.data.total, "view")}</span>
    </div>
    <${List} state=${state} columns=${columns} keyOf=${(row) => row.name} label="Views" empty=${html`<${None} all=${state.data?.all} />`} />
    ${creating && html`<${CreateView} cluster=${cluster} onClose=${() => setCreating(false)} />`}`;
}

function None({ all }) {
  if (all) return html`<${Empty} title="No view is like that."><p>Change the search.</p><//>`;
  return html`<${Empty} title="No views yet.">
    <p>A view is a topic that shows a part of another one: only messages that match a condition, with only the fields that are wanted. Consumers read it like any topic, and the broker sends them nothing else.</p>
    <${Command} line=${`forebay view create orders.eu --from orders --where "value.region = 'eu'"`} />
  <//>`;
}

function CreateView({ cluster, onClose }) {
  const [form, setForm] = useState({ name: "", source: "", where: "", select: "", keep_tombstones: false, materialize: false });
  const [problem, setProblem] = useState(null);
  const topics = useData(`${cluster}/topics`, { size: 500 });
  const set = (patch) => {
    setForm({ ...form, ...patch });
    setProblem(null);
  };
  const shown = useSettled({ source: form.source, where: form.where, select: form.select, keep_tombstones: form.keep_tombstones });
  const preview = useData(shown.source && `${cluster}/view-preview`, shown);
  const error = problem ?? (shown.source ? preview.error : null);
  const wrong = (field) => (error?.field === field ? error.message : "");
  const submit = async (event) => {
    event.preventDefault();
    setProblem(null);
    try {
      if (await change(`${cluster}/views/create`, form)) {
        onClose();
        go(href(cluster, ["views", form.name.trim()]));
      }
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<${Dialog} title="Create view" onClose=${onClose} wide>
    <form class="form" onSubmit=${submit}>
      <${Field} label="Name" error=${wrong("name")}><input value=${form.name} onInput=${(event) => set({ name: event.target.value })} required autofocus maxlength="249" pattern="[A-Za-z0-9._\\-]+" autocomplete="off" spellcheck="false" /><//>
      <${Field} label="Of topic" error=${wrong("source")}>
        <input value=${form.source} list="view-sources" onInput=${(event) => set({ source: event.target.value.trim() })} required autocomplete="off" spellcheck="false" />
        <datalist id="view-sources">${(topics.data?.rows ?? []).map((row) => html`<option value=${row.name} key=${row.name}></option>`)}</datalist>
      <//>
      <${Field} label="Where" wide error=${wrong("where")} hint="A condition such as value.region = 'eu' AND headers['kind'] = 'new'. Empty: every message."><textarea rows="2" value=${form.where} onInput=${(event) => set({ where: event.target.value })} spellcheck="false"></textarea><//>
      <${Field} label="Select" wide error=${wrong("select")} hint="What values are made of, such as value.id, value.amount. Empty: the value as it is."><input class="value" value=${form.select} onInput=${(event) => set({ select: event.target.value })} spellcheck="false" autocomplete="off" /><//>
      <label class="toggle"><input type="checkbox" checked=${form.materialize} onChange=${(event) => set({ materialize: event.target.checked })} /><span>Store it in a topic of its own</span></label>
      <label class="toggle"><input type="checkbox" checked=${form.keep_tombstones} onChange=${(event) => set({ keep_tombstones: event.target.checked })} /><span>Keep tombstones</span></label>
      ${shown.source && !error && html`<div class="wide preview"><${Preview} state=${preview} /></div>`}
      ${error && !["name", "source", "where", "select"].includes(error.field) && html`<div class="wide"><${Trouble} error=${error} /></div>`}
      <div class="dialog-actions wide">
        <${Button} onClick=${onClose}>Cancel<//>
        <${Button} type="submit" kind="primary">Continue<//>
      </div>
    </form>
  <//>`;
}

function Preview({ state }) {
  if (!state.data) return html`<${Loading} rows=${3} />`;
  const { examined, matched, invalid, rows } = state.data;
  const columns = [
    { key: "place", title: "Message", render: (row) => html`<span title=${moment(row.timestamp)}>${row.partition}@${count(row.offset)}</span>` },
    { key: "key", title: "Key", wide: true, render: (row) => html`<${Bytes} message=${row} name="key" />` },
    { key: "value", title: "Value", render: (row) => html`<span class="value clipped">${row.value ?? row.value_base64 ?? "none"}</span>` },
  ];
  return html`<p class="preview-head" aria-live="polite">
      ${examined ? html`<b>${count(matched)}</b> of the newest ${plural(examined, "message")} match.` : "The topic has no messages to try it with."}
      ${invalid > 0 && ` ${count(invalid)} have no JSON value and are never shown.`}
    </p>
    ${rows.length > 0 && html`<div class="preview-rows"><${Table} columns=${columns} data=${{ rows }} keyOf=${(row) => `${row.partition}-${row.offset}`} label="What matches" /></div>`}`;
}

/** The value, a moment after the last change of it. */
function useSettled(value) {
  const key = JSON.stringify(value);
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), 300);
    return () => clearTimeout(timer);
  }, [key]);
  return settled;
}
