// Events of the timeline in words, and as marks on a line of time.
import { html } from "./dom.js";
import { Badge } from "./ui.js";
import { count, plural } from "./format.js";

export const KINDS = {
  change: { title: "Changes", one: "change", tone: "info" },
  election: { title: "Elections", one: "election", tone: "plain" },
  broker: { title: "Brokers", one: "broker", tone: "good" },
  controller: { title: "Controllers", one: "controller", tone: "plain" },
  failover: { title: "Failovers", one: "failover", tone: "severe" },
};

const CHANGES = {
  CreateTopics: "created topic",
  DeleteTopics: "deleted topic",
  DeleteRecords: "deleted records of",
  CreatePartitions: "changed the partitions of",
  CreateAcls: "added access rules for",
  DeleteAcls: "removed access rules for",
  AlterConfigs: "changed settings of",
  IncrementalAlterConfigs: "changed settings of",
  DeleteGroups: "deleted group",
  ElectLeaders: "elected leaders of",
  AlterPartitionReassignments: "moves partitions of",
  OffsetDelete: "deleted offsets of",
  AlterClientQuotas: "changed quotas of",
  AlterUserScramCredentials: "changed the login of",
  UpdateFeatures: "changed features",
  UnregisterBroker: "forgot broker",
  AlterShareGroupOffsets: "reset offsets of share group",
  DeleteShareGroupOffsets: "deleted offsets of share group",
  AlterDelays: "fired or cancelled delayed messages of",
  CreateDelegationToken: "created a delegation token",
  RenewDelegationToken: "renewed a delegation token",
  ExpireDelegationToken: "ended a delegation token",
};

export function Kind({ row }) {
  const kind = KINDS[row.kind] ?? { one: row.kind, tone: "plain" };
  return html`<${Badge} tone=${row.bad ? "severe" : row.failed ? "warning" : kind.tone}>${kind.one}<//>`;
}

/** One line about an event. */
export function eventText(row) {
  if (row.kind === "change") return `${person(row.who)} ${CHANGES[row.api] ?? row.api} ${row.what}${row.failed ? `: ${row.failed}` : ""}`;
  if (row.kind === "election") return `broker ${row.broker} leads ${row.partitions === 1 ? row.what : `${plural(row.partitions, "partition")}: ${row.what}`}`;
  if (row.kind === "failover") return `${row.what}; it led ${plural(row.partitions, "partition")}`;
  return row.what;
}

export function person(principal) {
  return principal === "User:ANONYMOUS" ? "somebody" : principal.replace(/^User:/, "");
}

const WIDTH = 1000;
const LANE = 26;
const SLOTS = 200;

/** A lane for each kind, a mark for each event; those that would lie on each other are one, larger mark. */
export function Lanes({ marks, since, until }) {
  const kinds = Object.keys(KINDS).filter((kind) => marks.some((mark) => mark[1] === kind));
  const span = Math.max(1, until - since);
  return html`<div class="lanes">
    ${kinds.map((kind) => {
      const slots = new Map();
      for (const [at, of, bad] of marks) {
        if (of !== kind) continue;
        const slot = Math.min(SLOTS - 1, Math.max(0, Math.floor(((at - since) / span) * SLOTS)));
        const found = slots.get(slot) ?? { count: 0, bad: false };
        slots.set(slot, { count: found.count + 1, bad: found.bad || bad });
      }
      const total = marks.filter((mark) => mark[1] === kind).length;
      return html`<div class="lane" key=${kind}>
        <span class="lane-title">${KINDS[kind].title} <span class="quiet-text">${count(total)}</span></span>
        <svg viewBox=${`0 0 ${WIDTH} ${LANE}`} preserveAspectRatio="none" role="img" aria-label=${`${KINDS[kind].title}: ${total}`}>
          <line x1="0" x2=${WIDTH} y1=${LANE / 2} y2=${LANE / 2} class="lane-line" />
          ${[...slots].map(([slot, { count: many, bad }]) => {
            const height = Math.min(LANE - 2, 8 + 5 * Math.log2(many));
            const x = ((slot + 0.5) * WIDTH) / SLOTS;
            return html`<line class=${`mark ${bad ? "severe" : kind}`} key=${slot} x1=${x} x2=${x} y1=${(LANE - height) / 2} y2=${(LANE + height) / 2}><title>${plural(many, KINDS[kind].one)}</title></line>`;
          })}
        </svg>
      </div>`;
    })}
    <div class="lane lane-times quiet-text" aria-hidden="true"><span></span><p><span>${clock(since, span)}</span><span>${clock(since + span / 2, span)}</span><span>now</span></p></div>
  </div>`;
}

function clock(ms, span) {
  const date = new Date(ms);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(span < 600000 ? { second: "2-digit" } : {}) });
  return span > 86400000 ? `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}` : time;
}
