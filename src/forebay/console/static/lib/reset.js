// Resetting the offsets of a group of any kind: choose a place, see every partition's from and to, then do it.
import { html, useEffect, useState } from "./dom.js";
import { useData } from "./data.js";
import { change } from "./change.js";
import { Button, Dialog, Field, Loading, Trouble } from "./ui.js";
import { Table } from "./table.js";
import { count, plural } from "./format.js";

const PLACES = {
  to_earliest: { title: "the beginning: read everything again" },
  to_latest: { title: "the end: only what comes from now on" },
  to_time: { title: "a time", label: "Time", hint: "How long ago (30m, 2h, 7d), or a date such as 2026-01-31T12:00 in UTC.", first: "1h" },
  to_offset: { title: "an offset", label: "Offset", hint: "The same in every partition.", first: "0" },
  shift_by: { title: "some messages on or back", label: "Messages", hint: "Negative goes back: -100.", first: "-100" },
};

/** base: the address of the group; topics: those that it knows; verb: what the offsets are called. */
export function ResetDialog({ base, name, topics, places, note, blocked, verb = "Committed", onClose }) {
  const [to, setTo] = useState("to_earliest");
  const [value, setValue] = useState("");
  const [chosen, setChosen] = useState("");
  const [partitions, setPartitions] = useState("");
  const [problem, setProblem] = useState("");
  const wanted = { to, value, topics: chosen && partitions.trim() ? `${chosen}:${partitions.replace(/\s/g, "")}` : chosen };
  const params = useSettled(wanted);
  const state = useData(`${base}/reset`, params);
  // What is agreed to must be what is shown.
  const ready = state.data?.changed && !state.loading && !state.error && JSON.stringify(wanted) === JSON.stringify(params);
  const wrong = (field) => (state.error?.field === field ? state.error.message : "");
  const submit = async (event) => {
    event.preventDefault();
    setProblem("");
    try {
      const done = await change(`${base}/reset`, params);
      if (done) onClose(done);
    } catch (error) {
      setProblem(error.message);
    }
  };
  const choose = (next) => {
    setTo(next);
    setValue(PLACES[next].first ?? "");
  };
  return html`<${Dialog} title=${`Reset offsets of ${name}`} onClose=${() => onClose(null)} wide>
    ${note && html`<p class="quiet-text preview-head">${note}</p>`}
    <form class="form" onSubmit=${submit}>
      <${Field} label="Go to" error=${wrong("to")}>
        <select value=${to} onChange=${(event) => choose(event.target.value)}>
          ${places.map((each) => html`<option value=${each} key=${each}>${PLACES[each].title}</option>`)}
        </select>
      <//>
      ${PLACES[to].label
        ? html`<${Field} label=${PLACES[to].label} hint=${PLACES[to].hint} error=${wrong("value")}><input value=${value} onInput=${(event) => setValue(event.target.value)} spellcheck="false" autocomplete="off" /><//>`
        : html`<span></span>`}
      <${Field} label="In" error=${wrong("topics")}>
        <select value=${chosen} onChange=${(event) => setChosen(event.target.value)}>
          <option value="">all its topics</option>
          ${topics.map((each) => html`<option value=${each} key=${each}>${each}</option>`)}
        </select>
      <//>
      ${chosen
        ? html`<${Field} label="Partitions" hint="Empty: all. Otherwise numbers with commas: 0,3"><input value=${partitions} onInput=${(event) => setPartitions(event.target.value)} inputmode="numeric" autocomplete="off" /><//>`
        : html`<span></span>`}
      <div class="wide preview"><${Preview} state=${state} verb=${verb} /></div>
      ${blocked && html`<p class="banner wide">${blocked}</p>`}
      ${problem && html`<p class="trouble wide" role="alert">${problem}</p>`}
      <div class="dialog-actions wide">
        <${Button} onClick=${() => onClose(null)}>Cancel<//>
        <${Button} type="submit" kind="primary" disabled=${Boolean(blocked || !ready)}>Continue<//>
      </div>
    </form>
  <//>`;
}

function Preview({ state, verb }) {
  if (state.error) return state.error.field ? null : html`<${Trouble} error=${state.error} retry=${state.reload} />`;
  if (!state.data) return html`<${Loading} rows=${3} />`;
  const { rows, changed, lag, gone } = state.data;
  const columns = [
    { key: "topic", title: "Topic", render: (row) => row.topic },
    { key: "partition", title: "Partition", number: true, render: (row) => row.partition },
    { key: "current", title: verb, number: true, render: (row) => (row.current === null ? "nothing" : count(row.current)) },
    { key: "arrow", title: "", render: () => html`<span aria-hidden="true">→</span>` },
    { key: "new", title: "New", number: true, render: (row) => html`<b>${count(row.new_offset)}</b>` },
    { key: "move", title: "Move", number: true, render: (row) => html`<${Move} by=${row.current === null ? null : row.new_offset - row.current} />` },
    { key: "lag", title: "Lag then", number: true, wide: true, render: (row) => count(row.lag) },
  ];
  return html`<p class="preview-head" aria-live="polite">
      ${changed ? html`<b>${plural(changed, "partition")}</b> of ${count(rows.length)} would change, and ${count(lag)} messages be left to read.` : "Nothing would change: the group is there already."}
      ${gone.length > 0 && html` Left out, because they exist no more: ${gone.slice(0, 5).join(", ")}${gone.length > 5 ? " …" : ""}.`}
    </p>
    <div class="preview-rows"><${Table} columns=${columns} data=${{ rows }} keyOf=${(row) => `${row.topic}-${row.partition}`} label="What would change" /></div>`;
}

function Move({ by }) {
  if (by === null) return html`<span class="quiet-text">new</span>`;
  if (!by) return html`<span class="quiet-text">stays</span>`;
  return html`<span class=${by > 0 ? "forward" : "back"}>${by > 0 ? "+" : "−"}${count(Math.abs(by))}</span>`;
}

/** The value, a moment after the last change of it: not every key is a request. */
function useSettled(value) {
  const key = JSON.stringify(value);
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), 250);
    return () => clearTimeout(timer);
  }, [key]);
  return settled;
}
