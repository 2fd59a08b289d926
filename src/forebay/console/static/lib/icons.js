// The icons of the menu: strokes on a grid of 24.
import { html } from "./dom.js";

const paths = {
  home: "M4 11l8-7 8 7M6 10v9h12v-9",
  topics: "M4 6h16M4 12h16M4 18h10",
  messages: "M4 5h16v11H9l-5 4z",
  groups: "M8 11a3 3 0 100-6 3 3 0 000 6zM2.5 19c0-3 2.5-5 5.5-5s5.5 2 5.5 5M16 11a2.5 2.5 0 100-5M17 14c2.5.3 4.5 2 4.5 5",
  share: "M7 12h10M13 8l4 4-4 4M4 5v14",
  letters: "M4 6h16v12H4zM4 7l8 6 8-6",
  clock: "M12 21a9 9 0 100-18 9 9 0 000 18zM12 7v5l3 2",
  views: "M4 5h16l-6 8v6l-4-2v-4z",
  brokers: "M4 5h16v6H4zM4 13h16v6H4zM7.5 8h.01M7.5 16h.01",
  swap: "M7 7h11l-3-3M17 17H6l3 3",
  users: "M12 11a4 4 0 100-8 4 4 0 000 8zM4 21c0-4 3.5-7 8-7s8 3 8 7",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 017 0v3",
  gauge: "M4 17a8 8 0 1116 0M12 17l4-5",
  timeline: "M3 12h18M7 8v8M12 6v12M18 9v6",
  pipe: "M3 8h6a3 3 0 013 3v2a3 3 0 003 3h6M18 13l3 3-3 3",
  star: "M12 4l2.5 5.2 5.5.8-4 4 1 5.7-5-2.7-5 2.7 1-5.7-4-4 5.5-.8z",
  moon: "M20 14.500A8 8 0 119.5 4a6.5 6.5 0 0010.5 10.500z",
  menu: "M4 7h16M4 12h16M4 17h16",
};

export function Icon({ name, filled }) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" fill=${filled ? "currentColor" : "none"}>
    <path d=${paths[name] ?? paths.topics} stroke="currentColor" stroke-width="1.7" stroke-linecap="round" stroke-linejoin="round" />
  </svg>`;
}
