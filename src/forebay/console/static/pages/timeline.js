// The timeline: elections, brokers that came and went, failovers, and what administrators changed.
import { html } from "../lib/dom.js";
import { route, setQuery } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { Button, Card, Empty, Loaded, PageHead, Search } from "../lib/ui.js";
import { Table, listParams } from "../lib/table.js";
import { KINDS, Kind, Lanes, eventText } from "../lib/events.js";
import { ago, moment, plural } from "../lib/format.js";

const RANGES = { "": "All that is known", 1: "Last hour", 6: "Last 6 hours", 24: "Last day", 168: "Last week" };

export default function Timeline({ cluster }) {
  const { kinds = "", hours = "" } = route.value.query;
  const state = useData(`${cluster}/timeline`, listParams({ kinds, hours }), { live: true });
  const chosen = new Set(kinds.split(",").filter(Boolean));
  const toggle = (kind) => {
    const next = new Set(chosen);
    if (!next.delete(kind)) next.add(kind);
    setQuery({ kinds: [...next].join(","), page: "" });
  };
  const columns = [
    { key: "at", title: "When", sort: true, render: (row) => html`<time class="no-break" title=${moment(row.at)}>${ago(row.at)}</time>` },
    { key: "kind", title: "Kind", render: (row) => html`<${Kind} row=${row} />` },
    { key: "what", title: "What", render: (row) => eventText(row) },
    { key: "client", title: "From", wide: true, render: (row) => row.client && html`<span class="quiet-text no-break">${row.client.replace(/:\d+$/, "")}</span>` },
    { key: "broker", title: "Told by", wide: true, render: (row) => html`<span class="quiet-text no-break">broker ${row.broker}</span>` },
  ];
  return html`<${PageHead} title="Timeline" />
    <div class="toolbar">
      <${Search} placeholder="Search events" />
      <label><span class="visually-hidden">Time</span><select value=${hours} onChange=${(event) => setQuery({ hours: event.target.value, page: "" })}>
        ${Object.entries(RANGES).sort(([a], [b]) => a - b).map(([value, title]) => html`<option value=${value} key=${value}>${title}</option>`)}
      </select></label>
      ${Object.entries(KINDS).map(([kind, { title }]) => html`<${Button} kind="small" key=${kind} pressed=${chosen.has(kind)} onClick=${() => toggle(kind)}>${title}<//>`)}
      <span class="quiet-text">${state.data && plural(state.data.total, "event")}</span>
    </div>
    <${Loaded} state=${state} rows=${6}>
      ${(data) =>
        data.marks.length
          ? html`<${Card} label="Events over time"><${Lanes} marks=${data.marks} since=${data.since_ms} until=${data.now_ms} /><//>
              <${Table} columns=${columns} data=${data} keyOf=${(row) => `${row.at}-${row.broker}-${row.kind}-${row.what}`} label="Events" empty="No event is like that." />`
          : html`<${Empty} title="Nothing has happened.">
              <p>Changes by administrators, elections, and brokers that come and go are shown here, as far as brokers remember them (the last 500 each) and this console has seen them.</p>
            <//>`}
    <//>`;
}
