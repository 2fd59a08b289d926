// Key, value and headers of one message as text: JSON is indented, bytes that are no text are base64.
import { html } from "./dom.js";
import { Copy } from "./ui.js";

export function Contents({ message }) {
  return html`<dl class="contents">
    <dt>Key</dt><dd><${Bytes} message=${message} name="key" /></dd>
    ${message.headers.length > 0 &&
    html`<dt>Headers</dt>
      <dd>${message.headers.map((header, at) => html`<div class="header-line" key=${at}><code>${header.name}</code> <${Bytes} message=${header} name="value" /></div>`)}</dd>`}
    <dt>Value</dt><dd><${Bytes} message=${message} name="value" large /></dd>
  </dl>`;
}

const SHOWN_MAX = 200000;
const DEPTH_MAX = 40;

/** One field of a server's answer: NAME is text, NAME_base64 anything else. */
export function Bytes({ message, name, large }) {
  const encoded = message[`${name}_base64`];
  const text = encoded ?? message[name];
  if (text === null || text === undefined) return html`<span class="quiet-text">none</span>`;
  const whole = text.length <= SHOWN_MAX;
  const shown = !whole ? text.slice(0, SHOWN_MAX) : encoded === undefined ? indented(text) : text;
  if (!large) return html`<span class="value">${shown}</span>${encoded !== undefined && html` <span class="quiet-text">base64</span>`}`;
  return html`<div class="payload"><pre tabindex="0">${shown}</pre><${Copy} text=${text} /></div>
    ${!whole && html`<span class="quiet-text">The first ${SHOWN_MAX} of ${text.length} characters. Copy takes all. </span>`}
    ${encoded !== undefined && html`<span class="quiet-text">Not text: shown as base64.</span>`}`;
}

function indent(depth) {
  return "  ".repeat(Math.min(depth, DEPTH_MAX));
}

function indented(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  // Indented by its own text, not by a parsed value: large numbers stay as they are.
  let depth = 0;
  let quoted = false;
  let out = "";
  for (let at = 0; at < text.length; at++) {
    const sign = text[at];
    if (quoted) {
      out += sign;
      if (sign === "\\") out += text[++at];
      else if (sign === '"') quoted = false;
    } else if (sign === '"') {
      quoted = true;
      out += sign;
    } else if (sign === "{" || sign === "[") {
      const close = text.slice(at + 1).match(/^\s*([}\]])/);
      if (close) {
        out += sign + close[1];
        at += close[0].length;
      } else out += `${sign}\n${indent(++depth)}`;
    } else if (sign === "}" || sign === "]") out += `\n${indent(--depth)}${sign}`;
    else if (sign === ",") out += `,\n${indent(depth)}`;
    else if (sign === ":") out += ": ";
    else if (!/\s/.test(sign)) out += sign;
  }
  return out;
}
