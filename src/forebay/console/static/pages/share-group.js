// One share group: deliveries by partition, who holds which messages until when, members, settings.
import { html, useState } from "../lib/dom.js";
import { go, href, route } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { change, isReadOnly } from "../lib/change.js";
import { Badge, Button, Card, Command, Empty, Loaded, PageHead, Stat, Tabs, toast } from "../lib/ui.js";
import { Table } from "../lib/table.js";
import { HistoryPlot } from "../lib/plot.js";
import { ResetDialog } from "../lib/reset.js";
import { compact, count, duration, plural, seconds } from "../lib/format.js";
import { Lag, StateBadge } from "./groups.js";

export default function ShareGroup({ cluster, rest }) {
  const [name] = rest;
  const base = `${cluster}/share-groups/${encodeURIComponent(name)}`;
  const state = useData(base, {}, { live: true });
  const [resetting, setResetting] = useState(false);
  const remove = () => change(`${base}/delete`).then((done) => done && go(href(cluster, ["share-groups"])), (error) => toast(error.message, "severe"));
  return html`<${PageHead} title=${name} crumbs=${[{ text: "Share groups", href: href(cluster, ["share-groups"]) }]}>
      ${!isReadOnly() && state.data &&
      html`<${Button} onClick=${() => setResetting(true)}>Reset offsets …<//><${Button} kind="danger-quiet" onClick=${remove}>Delete<//>`}
    <//>
    <${Loaded} state=${state}>
      ${(group) => html`<${Shown} cluster=${cluster} group=${group} />
        ${resetting &&
        html`<${ResetDialog}
          base=${base} name=${name} topics=${group.topics} verb="Start"
          places=${["to_earliest", "to_latest", "to_time", "to_offset"]}
          blocked=${group.members_all > 0 ? `The group has ${plural(group.members_all, "member")}: stop its consumers first.` : ""}
          onClose=${(done) => { setResetting(false); if (done) state.reload(); }}
        />`}`}
    <//>`;
}

function Shown({ cluster, group }) {
  const tab = route.value.query.tab ?? "deliveries";
  const windows = group.partitions.filter((row) => row.window).map((row) => row.window);
  const sum = (of) => windows.reduce((all, window) => all + window[of], 0);
  const locks = group.partitions.flatMap((row) => (row.window?.records ?? []).map((each) => ({ ...each, topic: row.topic, partition: row.partition })));
  const tabs = [
    { id: "deliveries", title: "Deliveries" },
    { id: "locks", title: "Locks and counts", count: locks.length },
    { id: "members", title: "Members", count: group.members_all },
    { id: "settings", title: "Settings" },
  ];
  return html`<div class="stats">
      <${Stat} label="State" value=${html`<${StateBadge} state=${group.state} />`} hint=${plural(group.members_all, "member")} />
      <${Stat} label="Lag" value=${compact(group.lag)} tone=${group.lag > 0 ? "warning" : ""} hint="not finished" />
      <${Stat} label="Behind" value=${seconds(group.lag_seconds)} hint="age of the oldest" />
      <${Stat} label="Held" value=${count(sum("held"))} hint="being worked on" />
      <${Stat} label="Come again" value=${count(sum("waiting_for_retry"))} hint="after their pause" />
      <${Stat} label="Given up" value=${count(sum("dead_letters_waiting"))} tone=${group.problems.length ? "severe" : ""} hint="become dead letters" />
    </div>
    ${group.problems.map((problem) => html`<div class="health severe" key=${problem}><span class="dot"></span><p>${problem}</p></div>`)}
    <${Tabs} tabs=${tabs} selected=${tab} />
    ${tab === "deliveries" && html`<${Deliveries} cluster=${cluster} group=${group} />`}
    ${tab === "locks" && html`<${Locks} cluster=${cluster} group=${group} locks=${locks} />`}
    ${tab === "members" && html`<${Members} group=${group} />`}
    ${tab === "settings" && html`<${Settings} cluster=${cluster} group=${group} />`}`;
}

function Deliveries({ cluster, group }) {
  const columns = [
    { key: "partition", title: "Partition", render: (row) => html`<a class="strong" href=${href(cluster, ["topics", row.topic])}>${row.topic}</a><span class="quiet-text">-</span>${row.partition}` },
    { key: "start", title: "Start", number: true, render: (row) => html`<span title="The first message that is not finished">${count(row.start_offset)}</span>` },
    { key: "lag", title: "Lag", number: true, render: (row) => html`<${Lag} lag=${row.lag} />` },
    { key: "seconds", title: "Behind", number: true, render: (row) => seconds(row.lag_seconds) },
    { key: "held", title: "Held", number: true, render: (row) => (row.window ? count(row.window.held) : "–") },
    { key: "retry", title: "Come again", number: true, wide: true, render: (row) => (row.window ? count(row.window.waiting_for_retry) : "–") },
    { key: "window", title: "Window", wide: true, render: (row) => html`<${Window} window=${row.window} />` },
    { key: "members", title: "Members", number: true, wide: true, render: (row) => count(row.members) },
  ];
  return html`<${Card} title="Lag in the last hour"><${HistoryPlot} cluster=${cluster} lines=${[{ series: `lag:${group.group}`, label: "messages" }]} format=${compact} height=${150} label=${`Lag of ${group.group}`} /><//>
    <${Table} columns=${columns} data=${{ rows: group.partitions }} keyOf=${(row) => `${row.topic}-${row.partition}`} label="Partitions" empty="It has begun with no partition yet." />
    ${group.partitions_all > group.partitions.length && html`<p class="quiet-text">Those with the largest lag: ${count(group.partitions.length)} of ${count(group.partitions_all)}.</p>`}`;
}

/** How much of what may be under way at once is used: a full window stops the partition. */
function Window({ window }) {
  if (!window) return html`<span class="quiet-text">not in use</span>`;
  return html`<span class="window" title=${`${count(window.offsets)} of ${count(window.offsets_max)} offsets between the first and the last message under way`}>
    <meter min="0" max=${window.offsets_max} low=${window.offsets_max * 0.8} high=${window.offsets_max * 0.95} optimum="0" value=${window.offsets} aria-hidden="true"></meter>
    ${count(window.offsets)} of ${count(window.offsets_max)}
  </span>`;
}

const STATES = { held: ["held", "info"], waits: ["comes again", "warning"], "dead letter": ["to dead letters", "severe"] };

function Locks({ cluster, group, locks }) {
  const clients = Object.fromEntries(group.members.map((member) => [member.member, member.client]));
  const most = Number(group.settings["share.delivery.count.limit"]) || 0;
  const columns = [
    { key: "place", title: "Messages", render: (row) => html`<b>${row.topic}</b><span class="quiet-text">-</span>${row.partition} <a href=${href(cluster, ["messages", row.topic], { partition: row.partition, from: row.first_offset })}>@${count(row.first_offset)}${row.last_offset > row.first_offset && html`–${count(row.last_offset)}`}</a>` },
    { key: "count", title: "Count", number: true, wide: true, render: (row) => count(row.last_offset - row.first_offset + 1) },
    { key: "state", title: "State", render: (row) => { const [text, tone] = STATES[row.state] ?? [row.state, "plain"]; return html`<${Badge} tone=${tone}>${text}<//>`; } },
    { key: "deliveries", title: "Deliveries", number: true, render: (row) => html`<span class=${most && row.deliveries >= most ? "lagging" : ""}>${count(row.deliveries)}${most > 0 && html`<span class="quiet-text"> of ${most}</span>`}</span>` },
    { key: "member", title: "Held by", render: (row) => (row.member ? html`<span title=${row.member}>${clients[row.member] ?? row.member}</span>` : html`<span class="quiet-text">–</span>`) },
    { key: "left", title: "Until", number: true, render: (row) => (row.left_ms === null ? html`<span class="quiet-text">–</span>` : html`<span title=${new Date(Date.now() + row.left_ms).toLocaleTimeString("en-GB")}>in ${duration(Math.ceil(row.left_ms / 1000) * 1000)}</span>`) },
  ];
  const empty = html`<${Empty} title="Nothing is under way."><p>Messages that members hold, or that come again, appear here: with their holder, the end of the lock and how often they were delivered.</p><//>`;
  return html`<${Table} columns=${columns} data=${{ rows: locks }} keyOf=${(row) => `${row.topic}-${row.partition}-${row.first_offset}`} label="Locks" empty=${empty} />`;
}

function Members({ group }) {
  const held = {};
  for (const row of group.partitions) for (const holder of row.window?.holders ?? []) held[holder.member] = (held[holder.member] ?? 0) + holder.records;
  const columns = [
    { key: "client", title: "Client", render: (row) => html`<b>${row.client || "–"}</b><br /><span class="quiet-text value">${row.member}</span>` },
    { key: "host", title: "Host", wide: true, render: (row) => row.host.replace(/^\//, "") },
    { key: "partitions", title: "Takes from", render: (row) => html`${row.partitions.slice(0, 20).join(", ")}${row.partitions.length > 20 && html`<span class="quiet-text"> and ${row.partitions.length - 20} more</span>`}` },
    { key: "held", title: "Holds", number: true, render: (row) => count(held[row.member] ?? 0) },
  ];
  const empty = html`<${Empty} title="Nobody works for this group now."><p>Start a worker:</p><${Command} line=${`forebay work ${group.topics[0] ?? "TOPIC"} --group ${group.group} -- COMMAND`} /><//>`;
  return html`<${Table} columns=${columns} data=${{ rows: group.members }} keyOf=${(row) => row.member} label="Members" empty=${empty} />`;
}

function Settings({ cluster, group }) {
  const shown = (key, value) => {
    if (!value) return html`<span class="quiet-text">none</span>`;
    if (key === "errors.deadletterqueue.topic.name") return html`<a href=${href(cluster, ["dead-letters", value])}>${value}</a>`;
    return html`<span class="value">${value}</span> ${key.endsWith(".ms") && Number(value) >= 1000 && html`<span class="quiet-text">${duration(Number(value))}</span>`}`;
  };
  const columns = [
    { key: "name", title: "Setting", render: (row) => html`<code>${row[0]}</code>` },
    { key: "value", title: "Value", render: (row) => shown(...row) },
  ];
  return html`<${Table} columns=${columns} data=${{ rows: Object.entries(group.settings) }} keyOf=${(row) => row[0]} label="Settings" />
    <p class="quiet-text">To change one:</p><${Command} line=${`forebay config set group ${group.group} share.delivery.count.limit=10`} />`;
}
