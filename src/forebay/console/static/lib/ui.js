// Small parts that all pages are made of.
import { cloneElement, html, useEffect, useRef, useState, signal } from "./dom.js";
import { look } from "./live.js";
import { go, href, route, setQuery } from "./router.js";

export function PageHead({ title, crumbs = [], children }) {
  useEffect(() => {
    document.title = `${title} · Forebay`;
  }, [title]);
  return html`<header class="page-head">
    <div>
      ${crumbs.length > 0 &&
      html`<nav class="crumbs" aria-label="Where you are">
        ${crumbs.map((crumb) => html`<a href=${crumb.href}>${crumb.text}</a><span aria-hidden="true">/</span>`)}
      </nav>`}
      <h1 tabindex="-1">${title}</h1>
    </div>
    <div class="actions">${children}</div>
  </header>`;
}

export function Card({ title, children, actions, wide, label }) {
  return html`<section class=${`card${wide ? " wide" : ""}`} aria-label=${label ?? title}>
    ${(title || actions) &&
    html`<header class="card-head">${title && html`<h2>${title}</h2>`}<div class="actions">${actions}</div></header>`}
    ${children}
  </section>`;
}

export function Stat({ label, value, hint, link, tone }) {
  const inner = html`<span class="stat-label">${label}</span>
    <span class=${`stat-value ${tone ?? ""}`}>${value}</span>
    ${hint && html`<span class="stat-hint">${hint}</span>`}`;
  return link ? html`<a class="stat" href=${link}>${inner}</a>` : html`<div class="stat">${inner}</div>`;
}

/** tone: good, warning, severe, info or plain. */
export function Badge({ tone = "plain", children, title }) {
  return html`<span class=${`badge ${tone}`} title=${title}>${children}</span>`;
}

export function Button({ children, onClick, kind = "", type = "button", disabled, title, label, pressed }) {
  return html`<button
    type=${type}
    class=${`button ${kind}`}
    onClick=${onClick}
    disabled=${disabled}
    title=${title}
    aria-label=${label}
    aria-pressed=${pressed}
  >
    ${children}
  </button>`;
}

/** An error of the server, with a way to try again. */
export function Trouble({ error, retry }) {
  if (!error) return null;
  return html`<div class="trouble" role="alert">
    <p>${error.message}</p>
    ${retry && html`<${Button} onClick=${retry}>Try again<//>`}
  </div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children}</div>`;
}

export function Loading({ rows = 5 }) {
  return html`<div class="loading" role="status" aria-label="Loading">
    ${Array.from({ length: rows }, (_, at) => html`<div class="bone" key=${at}></div>`)}
  </div>`;
}

/** Data that is loading, has failed, or is there. Old data stays visible under an error. */
export function Loaded({ state, children, rows }) {
  // The shell says already that the cluster does not answer.
  const known = look.value?.problem && state.data;
  if (state.data) return html`<${Trouble} error=${known ? null : state.error} retry=${state.reload} />${children(state.data)}`;
  if (state.error) return html`<${Trouble} error=${state.error} retry=${state.reload} />`;
  return html`<${Loading} rows=${rows} />`;
}

/** Tabs with an address each: the query parameter `tab`. tabs: [{id, title, count}] */
export function Tabs({ tabs, selected }) {
  const query = route.value.query;
  const parts = [route.value.page, ...route.value.rest];
  return html`<nav class="tabs" aria-label="Parts of this page">
    ${tabs.map(
      (tab) =>
        html`<a
          href=${href(route.value.cluster, parts, { tab: tab.id === tabs[0].id ? "" : tab.id })}
          aria-current=${tab.id === selected ? "page" : undefined}
          key=${tab.id}
          >${tab.title}${tab.count !== undefined && html` <span class="tab-count">${tab.count}</span>`}</a
        >`,
    )}
  </nav>`;
}

let nextField = 1;

/** An input (one child) with its label, a hint, and what is wrong with it. */
export function Field({ label, hint, error, children, wide }) {
  const id = useRef(`field-${nextField++}`).current;
  const note = error || hint;
  const input = cloneElement([].concat(children).find((child) => child?.props), {
    id,
    "aria-describedby": note ? `${id}-note` : undefined,
    "aria-invalid": error ? "true" : undefined,
  });
  return html`<div class=${`field${wide ? " wide" : ""}${error ? " wrong" : ""}`}>
    <label class="field-label" for=${id}>${label}</label>
    ${input}
    ${note && html`<span id=${`${id}-note`} class=${error ? "field-error" : "field-hint"} role=${error ? "alert" : undefined}>${note}</span>`}
  </div>`;
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("copied");
  } catch {
    toast("the browser does not allow copying here", "warning");
  }
}

export function Copy({ text, label = "Copy" }) {
  return html`<button type="button" class="button quiet small" onClick=${() => copy(text)}>${label}</button>`;
}

/** A command line, to be copied. */
export function Command({ line }) {
  return html`<div class="command"><code>${line}</code><${Copy} text=${line} /></div>`;
}

// -- short messages ---------------------------------------------------------------------------------------

const toasts = signal([]);
let nextToast = 1;

/** Say something for a few seconds. `command` stays until it is closed. */
export function toast(text, tone = "good", command = "") {
  const one = { id: nextToast++, text, tone, command };
  toasts.value = [...toasts.value.slice(-3), one];
  setTimeout(() => closeToast(one.id), command ? 12000 : 4000);
}

function closeToast(id) {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.value.map(
      (each) => html`<div class=${`toast ${each.tone}`} key=${each.id}>
        <div>
          <p>${each.text}</p>
          ${each.command && html`<${Command} line=${each.command} />`}
        </div>
        <button type="button" class="button quiet small" aria-label="Close" onClick=${() => closeToast(each.id)}>✕</button>
      </div>`,
    )}
  </div>`;
}

// -- dialogs ----------------------------------------------------------------------------------------------

/** A modal dialog, which Escape closes. */
export function Dialog({ title, onClose, children, wide }) {
  const element = useRef(null);
  useEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    // Without an input to begin with, nothing should look chosen.
    if (!dialog.querySelector("[autofocus]")) dialog.querySelector("h2").focus();
    return () => dialog.close();
  }, []);
  return html`<dialog
    ref=${element}
    class=${wide ? "wide" : ""}
    aria-label=${title}
    onCancel=${(event) => {
      event.preventDefault();
      onClose();
    }}
    onClick=${(event) => event.target === element.current && onClose()}
  >
    <div class="dialog-body">
      <header class="dialog-head">
        <h2 tabindex="-1">${title}</h2>
        <button type="button" class="button quiet" aria-label="Close" onClick=${onClose}>✕</button>
      </header>
      ${children}
    </div>
  </dialog>`;
}

/** A search field that changes the address a moment after the last key. "/" goes to it. */
export function Search({ name = "search", placeholder = "Search", label = placeholder }) {
  const given = route.value.query[name] ?? "";
  const [text, setText] = useState(given);
  const timer = useRef(0);
  const input = useRef(null);
  useEffect(() => setText(given), [given]);
  useEffect(() => {
    const focus = (event) => {
      if (event.key !== "/" || event.target.closest("input:not([type=checkbox]), textarea, select, dialog")) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener("keydown", focus);
    return () => {
      removeEventListener("keydown", focus);
      clearTimeout(timer.current);
    };
  }, []);
  const change = (value) => {
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ [name]: value, page: "" }), 180);
  };
  return html`<input
    ref=${input}
    type="search"
    class="search"
    value=${text}
    placeholder=${`${placeholder}  /`}
    aria-label=${label}
    onInput=${(event) => change(event.target.value)}
  />`;
}

export function Toggle({ checked, onChange, children }) {
  return html`<label class="toggle"
    ><input type="checkbox" checked=${checked} onChange=${(event) => onChange(event.target.checked)} /><span>${children}</span></label
  >`;
}

export { go, href };
