// Every page: where it is, what it is called, and its module, which is loaded when it is first shown.
// `nav: false` keeps it out of the menu. `group` is a heading of the menu.
export const pages = [
  { id: "overview", title: "Overview", icon: "home", load: () => import("./overview.js") },
  { id: "topics", title: "Topics", icon: "topics", load: () => import("./topics.js") },
  { id: "messages", title: "Messages", icon: "messages", load: () => import("./messages.js") },
  { id: "groups", title: "Groups", icon: "groups", load: () => import("./groups.js") },
  { id: "share-groups", title: "Share groups", icon: "share", load: () => import("./share-groups.js") },
  { id: "dead-letters", title: "Dead letters", icon: "letters", load: () => import("./dead-letters.js") },
  { id: "delays", title: "Delayed", icon: "clock", load: () => import("./delays.js") },
  { id: "views", title: "Views", icon: "views", load: () => import("./views.js") },
  { id: "pipelines", title: "Pipelines", icon: "pipe", load: () => import("./pipelines.js") },
  { id: "transactions", title: "Transactions", icon: "swap", load: () => import("./transactions.js") },
  { id: "brokers", title: "Brokers", icon: "brokers", load: () => import("./brokers.js") },
  { id: "timeline", title: "Timeline", icon: "timeline", load: () => import("./timeline.js") },
  { id: "security", title: "Security", icon: "lock", load: () => import("./security.js") },
];

/** The module for an address; the first rest of it may have a page of its own: /topics/NAME. */
export const details = {
  topics: () => import("./topic.js"),
  brokers: () => import("./broker.js"),
  groups: () => import("./group.js"),
  "share-groups": () => import("./share-group.js"),
  "dead-letters": () => import("./dead-letter-topic.js"),
  delays: () => import("./delay-topic.js"),
  views: () => import("./view.js"),
};
