// Partitions and leaders over brokers: a row for each topic, a column for each broker, a cell for each replica.
import { html } from "./dom.js";
import { href } from "./router.js";
import { useData } from "./data.js";
import { listParams } from "./table.js";
import { Card, Loaded, Search } from "./ui.js";
import { Pages } from "./table.js";
import { count, plural } from "./format.js";

const KINDS = { l: "leads", f: "follows", b: "behind" };

export function Spread({ cluster }) {
  const state = useData(`${cluster}/spread`, listParams(), { live: true });
  return html`<${Card} title="Partitions and leaders over brokers" actions=${html`<${Search} placeholder="Search topics" />`}>
    <${Loaded} state=${state}>
      ${(data) =>
        data.rows.length
          ? html`<div class="table-frame plain" tabindex="0" role="region" aria-label="Partitions and leaders over brokers">
                <table class="spread">
                  <thead>
                    <tr><th scope="col">Topic</th>${data.brokers.map((node) => html`<th scope="col" key=${node}>Broker ${node}</th>`)}</tr>
                  </thead>
                  <tbody>
                    ${data.rows.map((row) => html`<${Row} key=${row.name} cluster=${cluster} row=${row} brokers=${data.brokers} />`)}
                  </tbody>
                </table>
              </div>
              <p class="spread-legend" aria-hidden="true"><i class="tile leads"></i>leads<i class="tile follows"></i>follows<i class="tile behind"></i>behind or away</p>
              <${Pages} data=${data} />`
          : html`<p class="quiet-text">${data.all ? "No topic is like that." : "No topics yet."}</p>`}
    <//>
  <//>`;
}

function Row({ cluster, row, brokers }) {
  return html`<tr>
    <th scope="row"><a href=${href(cluster, ["topics", row.name])}>${row.name}</a><span class="quiet-text">${plural(row.partitions, "partition")}</span></th>
    ${brokers.map((node) => html`<td key=${node}><${Part} topic=${row.name} part=${row.brokers[node]} /></td>`)}
  </tr>`;
}

function Part({ topic, part }) {
  if (!part) return html`<span class="quiet-text">–</span>`;
  const words = `leads ${count(part.leads)} of ${count(part.replicas)}${part.behind ? `, ${count(part.behind)} behind` : ""}`;
  return html`<span class="spread-count">${words}</span>
    ${part.cells &&
    html`<span class="tiles" role="img" aria-label=${words}>
      ${Object.entries(part.cells).flatMap(([kind, indexes]) =>
        indexes.map((index) => html`<i class=${`tile ${KINDS[kind]}`} title=${`${topic}-${index}: ${KINDS[kind]}`} key=${index}></i>`),
      )}
    </span>`}`;
}
