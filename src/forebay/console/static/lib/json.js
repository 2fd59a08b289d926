// JSON for reading: indented and coloured as text, without parsing numbers (they may be longer than a script's).
import { html } from "./dom.js";

const TOKENS = /"(?:[^"\\]|\\.)*"?|[{}[\]:,]|[^\s"{}[\]:,]+/g;
const NODES_MAX = 4000;

/** The tokens of a JSON text, with line breaks and indents: [{text, kind}]. */
export function pretty(text) {
  const tokens = text.match(TOKENS) ?? [];
  const out = [];
  let depth = 0;
  const line = () => out.push({ text: `\n${"  ".repeat(depth)}`, kind: "" });
  tokens.forEach((token, at) => {
    const next = tokens[at + 1];
    if (token === "{" || token === "[") {
      out.push({ text: token, kind: "mark" });
      if (next === "}" || next === "]") return;
      depth += 1;
      line();
    } else if (token === "}" || token === "]") {
      const before = tokens[at - 1];
      if (before !== "{" && before !== "[") {
        depth = Math.max(0, depth - 1);
        line();
      }
      out.push({ text: token, kind: "mark" });
    } else if (token === ",") {
      out.push({ text: ",", kind: "mark" });
      line();
    } else if (token === ":") {
      out.push({ text: ": ", kind: "mark" });
    } else if (token.startsWith('"')) {
      out.push({ text: token, kind: next === ":" ? "name" : "string" });
    } else {
      out.push({ text: token, kind: /^[-\d]/.test(token) ? "digits" : "word" });
    }
  });
  return out;
}

export function prettyText(text) {
  return pretty(text).map((token) => token.text).join("");
}

export function Json({ text }) {
  const tokens = pretty(text);
  if (tokens.length > NODES_MAX) return html`<pre class="content">${tokens.map((token) => token.text).join("")}</pre>`;
  return html`<pre class="content">${tokens.map((token, at) => (token.kind && token.kind !== "mark" ? html`<span class=${`json-${token.kind}`} key=${at}>${token.text}</span>` : token.text))}</pre>`;
}

/** Bytes as hex and characters, sixteen on a line. */
export function hexDump(hex) {
  const lines = [];
  for (let at = 0; at < hex.length; at += 32) {
    const part = hex.slice(at, at + 32);
    const bytes = part.match(/../g) ?? [];
    const letters = bytes.map((byte) => {
      const code = parseInt(byte, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : ".";
    });
    lines.push(`${(at / 2).toString(16).padStart(6, "0")}  ${bytes.join(" ").padEnd(47)}  ${letters.join("")}`);
  }
  return lines.join("\n");
}
