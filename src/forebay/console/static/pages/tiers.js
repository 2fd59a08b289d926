// Where the messages of a tiered topic lie: on the leaders' disks, in the object store, or in both.
import { html } from "../lib/dom.js";
import { Badge, Trouble } from "../lib/ui.js";
import { Table } from "../lib/table.js";
import { bytes, count, plural } from "../lib/format.js";

export function Tiers({ topic }) {
  const rows = topic.rows.filter((row) => row.remote);
  const problems = [...new Set(rows.map((row) => row.remote.problem).filter(Boolean))];
  const columns = [
    { key: "partition", title: "Partition", render: (row) => html`<span class="strong">${row.partition}</span>` },
    { key: "where", title: "Where", render: (row) => html`<${Where} row=${row} />` },
    { key: "start", title: "First in the store", number: true, wide: true, render: (row) => count(row.remote.start) },
    { key: "end", title: "End there", number: true, wide: true, render: (row) => count(row.remote.end) },
    { key: "local", title: "First on disk", number: true, wide: true, render: (row) => count(row.remote.local_start) },
    { key: "log_end", title: "End", number: true, wide: true, render: (row) => count(row.end) },
    { key: "remote", title: "In the store", number: true, render: (row) => bytes(row.remote.size) },
    { key: "size", title: "On disk", number: true, render: (row) => bytes(row.size) },
    { key: "waiting", title: "Not copied yet", number: true, render: (row) => html`<${Waiting} log=${row.remote} />` },
  ];
  return html`${problems.slice(0, 3).map((problem) => html`<${Trouble} key=${problem} error=${{ message: problem }} />`)}
    <p class="tier-legend" aria-hidden="true">Messages by offset:<i class="tier store"></i>in the object store<i class="tier both"></i>in both<i class="tier disk"></i>on disk</p>
    <${Table} columns=${columns} data=${{ rows }} keyOf=${(row) => row.partition} label="Disk and object store by partition" />`;
}

function Waiting({ log }) {
  if (!log.known) return log.problem ? html`<${Badge} tone="severe">fails<//>` : html`<span class="quiet-text">not known yet</span>`;
  if (!log.copies) return html`<${Badge} title="remote.log.copy.disable">copies no more<//>`;
  const tone = log.problem ? "severe" : log.behind ? "warning" : "";
  const text = log.waiting_segments ? `${bytes(log.waiting)}, ${plural(log.waiting_segments, "segment")}` : "nothing";
  return tone ? html`<${Badge} tone=${tone}>${text}<//>` : html`<span class="no-break">${text}</span>`;
}

/** One bar from the first offset to the last: in the store alone, in both, on the disk alone. */
function Where({ row }) {
  const { start, end } = row;
  const log = row.remote;
  if (start === null || end === null || end <= start) return html`<span class="quiet-text">empty</span>`;
  const share = (offset) => (100 * (Math.min(Math.max(offset, start), end) - start)) / (end - start);
  const local = share(log.local_start);
  const copied = log.end === null ? 0 : share(log.end);
  const parts = [
    { kind: "store", from: 0, to: Math.min(local, copied) },
    { kind: "both", from: local, to: copied },
    { kind: "disk", from: Math.max(local, copied), to: 100 },
  ].filter((part) => part.to > part.from);
  const words = `${Math.round(copied)} % in the object store, ${Math.round(100 - local)} % on disk`;
  return html`<svg class="tier-bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label=${words}>
    <title>${words}</title>
    ${parts.map((part) => html`<rect class=${`tier ${part.kind}`} x=${part.from} width=${part.to - part.from} height="8" key=${part.kind} />`)}
  </svg>`;
}
