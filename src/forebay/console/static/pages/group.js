// One consumer group: how far it is behind and where, its members, resetting, removing a member, deleting.
import { html, useState } from "../lib/dom.js";
import { go, href, route } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { change, isReadOnly } from "../lib/change.js";
import { Button, Card, Command, Empty, Loaded, PageHead, Search, Stat, Tabs, toast } from "../lib/ui.js";
import { List, Table, listParams } from "../lib/table.js";
import { HistoryPlot } from "../lib/plot.js";
import { HeatStrips } from "../lib/heat.js";
import { ResetDialog } from "../lib/reset.js";
import { compact, count, plural, seconds } from "../lib/format.js";
import { GroupState, Lag, TopicLinks } from "./groups.js";

export default function Group({ cluster, rest }) {
  const [name] = rest;
  const base = `${cluster}/groups/${encodeURIComponent(name)}`;
  const state = useData(base, {}, { live: true });
  const more = useData(`${cluster}/more-of-groups`, { names: name }, { live: true });
  const [resetting, setResetting] = useState(false);
  const tab = route.value.query.tab ?? "lag";
  const failed = (error) => toast(error.message, "severe");
  const remove = () => change(`${base}/delete`).then((done) => done && go(href(cluster, ["groups"])), failed);
  const kick = (member) => change(`${base}/remove-member`, { member }).then((done) => done && state.reload(), failed);
  const tabs = [
    { id: "lag", title: "Lag" },
    { id: "partitions", title: "Partitions", count: state.data?.partitions },
    { id: "members", title: "Members", count: state.data?.members_all },
  ];
  return html`<${PageHead} title=${name} crumbs=${[{ text: "Groups", href: href(cluster, ["groups"]) }]}>
      ${!isReadOnly() && state.data &&
      html`<${Button} onClick=${() => setResetting(true)}>Reset offsets …<//><${Button} kind="danger-quiet" onClick=${remove}>Delete<//>`}
    <//>
    <${Loaded} state=${state}>
      ${(group) => html`<div class="stats">
          <${Stat} label="State" value=${html`<${GroupState} row=${group} />`} hint=${group.spark ? "a stream commits to it" : `${group.kind}${group.protocol ? ` · ${group.protocol}` : ""}`} link=${group.spark ? href(cluster, ["pipelines"]) : undefined} />
          <${Stat} label="Lag" value=${compact(group.lag)} tone=${group.lag > 0 ? "warning" : ""} hint=${group.lag >= 10000 ? `${count(group.lag)} messages` : "messages"} />
          <${Stat} label="Behind" value=${seconds(more.data?.[name]?.seconds)} hint="age of the oldest unread" />
          <${Stat} label="Members" value=${count(group.members_all)} hint=${`coordinated by broker ${group.coordinator}`} />
          <${Stat} label="Partitions" value=${count(group.partitions)} hint=${group.behind ? `${count(group.behind)} behind` : "all read"} />
        </div>
        <${Tabs} tabs=${tabs} selected=${tab} />
        ${tab === "lag" && html`<${LagTab} cluster=${cluster} group=${group} />`}
        ${tab === "partitions" && html`<${Partitions} cluster=${cluster} base=${base} />`}
        ${tab === "members" && html`<${Members} group=${group} onRemove=${kick} />`}
        ${resetting &&
        html`<${ResetDialog}
          base=${base} name=${name} topics=${group.topics}
          places=${["to_earliest", "to_latest", "to_time", "to_offset", "shift_by"]}
          note=${group.spark ? "A stream of Spark goes on from its checkpoint, not from these offsets: a reset changes only what is shown, until its next batch." : ""}
          blocked=${group.members_all > 0 ? `The group has ${plural(group.members_all, "member")}: stop its consumers first, else they would commit over the reset.` : ""}
          onClose=${(done) => { setResetting(false); if (done) state.reload(); }}
        />`}`}
    <//>`;
}

function LagTab({ cluster, group }) {
  if (!group.strips.length) {
    return html`<${Empty} title="This group has committed nothing yet."><p>Its lag is known after its first commit. A reset gives it offsets without a consumer:</p><${Command} line=${`forebay group reset-offsets ${group.name} --topic TOPIC --to-earliest --execute`} /><//>`;
  }
  return html`<div class="columns">
      <${Card} title="Lag in the last hour"><${HistoryPlot} cluster=${cluster} lines=${[{ series: `lag:${group.name}`, label: "messages" }]} format=${compact} height=${150} label=${`Lag of ${group.name}`} /><//>
      <${Card} title="Behind in time"><${HistoryPlot} cluster=${cluster} lines=${[{ series: `seconds:${group.name}`, label: "age of the oldest unread", spanGaps: true }]} format=${seconds} height=${150} label=${`How long ${group.name} is behind, while somebody looks at groups`} /><//>
    </div>
    <${Card} title="Lag by partition"><${HeatStrips} strips=${group.strips} /><//>
    <p class="quiet-text">Reads <${TopicLinks} cluster=${cluster} topics=${group.topics} /></p>`;
}

function Partitions({ cluster, base }) {
  const state = useData(`${base}/partitions`, listParams({ sort: route.value.query.sort ?? "-lag" }), { live: true });
  const columns = [
    { key: "name", title: "Partition", sort: true, render: (row) => html`<a class="strong" href=${href(cluster, ["topics", row.topic])}>${row.topic}</a><span class="quiet-text">-</span>${row.partition}` },
    { key: "committed", title: "Committed", sort: true, number: true, render: (row) => count(row.committed) },
    { key: "end", title: "End", sort: true, number: true, wide: true, render: (row) => count(row.end) },
    { key: "lag", title: "Lag", sort: true, number: true, render: (row) => html`<${Lag} lag=${row.lag} />` },
    { key: "seconds", title: "Behind", number: true, render: (row) => seconds(row.seconds) },
    { key: "client", title: "Read by", sort: true, wide: true, render: (row) => (row.client === null ? html`<span class="quiet-text">nobody</span>` : html`<span title=${row.member}>${row.client}</span>`) },
  ];
  return html`<div class="toolbar"><${Search} placeholder="Search topics, clients, members" /><span class="quiet-text">${state.data && plural(state.data.total, "partition")}</span></div>
    <${List} state=${state} columns=${columns} keyOf=${(row) => `${row.topic}-${row.partition}`} label="Partitions" empty="No partition is like that." />`;
}

function Members({ group, onRemove }) {
  const columns = [
    { key: "client", title: "Client", render: (row) => html`<b>${row.client || "–"}</b><br /><span class="quiet-text value">${row.id}</span>${row.instance && html`<br /><span class="quiet-text">instance ${row.instance}</span>`}` },
    { key: "host", title: "Host", wide: true, render: (row) => row.host },
    { key: "partitions", title: "Reads", render: (row) => html`<${Assignment} member=${row} />` },
    { key: "lag", title: "Lag", number: true, render: (row) => html`<${Lag} lag=${row.lag} />` },
    { key: "remove", title: html`<span class="visually-hidden">Remove</span>`, number: true, render: (row) => !isReadOnly() && html`<${Button} kind="quiet small" label=${`Remove ${row.client} ${row.id}`} onClick=${() => onRemove(row.id)}>Remove<//>` },
  ];
  const empty = html`<${Empty} title=${group.spark ? "A stream of Spark commits to this group, without being a member." : "Nobody reads for this group now."}>${!group.spark && html`<p>Its offsets are kept. Start a consumer to go on:</p><${Command} line=${`forebay consume ${group.topics[0] ?? "TOPIC"} --group ${group.name}`} />`}<//>`;
  return html`<${Table} columns=${columns} data=${{ rows: group.members }} keyOf=${(row) => row.id} label="Members" empty=${empty} />
    ${group.members_all > group.members.length && html`<p class="quiet-text">The first ${count(group.members.length)} of ${count(group.members_all)}.</p>`}`;
}

/** orders 0–3, 7: runs of partitions by topic. */
export function Assignment({ member }) {
  if (!member.partitions) return html`<span class="quiet-text">nothing</span>`;
  const byTopic = {};
  for (const [topic, index] of member.assignment) (byTopic[topic] ??= []).push(index);
  return html`${Object.entries(byTopic).map(([topic, all]) => html`<div key=${topic}>${topic} <span class="quiet-text">${runs(all)}</span></div>`)}
    ${member.partitions > member.assignment.length && html`<div class="quiet-text">and ${count(member.partitions - member.assignment.length)} more</div>`}`;
}

function runs(numbers) {
  const found = [];
  for (const each of numbers) {
    const last = found.at(-1);
    if (last && last[1] === each - 1) last[1] = each;
    else found.push([each, each]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}
