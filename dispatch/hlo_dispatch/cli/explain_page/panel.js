"use strict";
// The panel at the side: everything known of the region or instruction that was clicked.

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made[key] = value;
    else if (value) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

class Panel {
  constructor(root, page) {
    this.root = root;
    this.page = page;
  }

  showNothing() {
    const keys = [
      ["click", "a region or an instruction: everything known of it stands here"],
      ["scroll, drag", "move; with Ctrl or pinching: zoom"],
      ["number in a box", "opens a fusion (so does a double click)"],
      ["strip at the edge", "the whole graph; click to go there"],
    ];
    const legend = [
      ["dispatched", "whole"], ["a part of it is dispatched", "part"], ["could be, and is left to XLA", "left"],
    ];
    this.root.replaceChildren(
      element("h2", {}, "How to read this"),
      element("ul", {class: "legend"}, ...legend.map(([text, kind]) =>
        element("li", {}, element("i", {class: kind}), text))),
      element("dl", {}, ...keys.flatMap(([key, text]) => [element("dt", {}, key), element("dd", {}, text)])),
    );
  }

  showRegion(number) {
    const region = this.page.regions[number];
    const title = element("h2", {class: "formula"}, region.formula);
    const state = region.kernel ? "dispatched" : region.missed ? "near miss" : "left to XLA";
    const chip = element("span", {class: region.kernel ? "chip good" : "chip"}, state);
    chip.style.setProperty("--region", this.page.colour(number));
    const facts = element("dl", {});
    this.add(facts, "result", region.shape);
    this.add(facts, "kernel", region.kernel);
    this.add(facts, "table's entry", region.entry);
    this.add(facts, "runs as", region.implementation);
    this.add(facts, "why", region.why);
    const stop = region.stoppedBecause && [region.stoppedAt ? this.link(region.stoppedAt) : "", region.stoppedAt ? ": " : "",
      region.stoppedBecause];
    this.add(facts, region.missed ? "stopped at" : "its epilogue ends", ...(stop || []));
    this.add(facts, "in the program", region.opName);
    this.add(facts, "source", region.source);
    this.add(facts, "instruction", this.link(region.name));
    if (region.call) this.add(facts, "kernel call", this.link(region.call));
    const parts = [element("p", {}, chip), title, facts];
    const attributes = Object.entries(region.attributes);
    if (attributes.length) parts.push(this.folded(`attributes (${attributes.length})`, true, element("table", {},
      ...attributes.map(([name, value]) => element("tr", {}, element("th", {}, name), element("td", {}, value))))));
    if (region.covered.length) parts.push(this.folded(`replaces ${region.covered.length} instructions`, false,
      element("ul", {class: "names"}, ...region.covered.map(name => element("li", {}, this.link(name))))));
    this.root.replaceChildren(...parts);
    this.root.scrollTop = 0;
  }

  showNode(pane, index) {
    const node = pane.graph.nodes[index], nodes = pane.graph.nodes;
    const facts = element("dl", {});
    this.add(facts, "opcode", node.opcode);
    this.add(facts, "result", node.shape);
    this.add(facts, "target", node.target);
    this.add(facts, "in the program", node.opName);
    const users = nodes.filter(user => user.operands.includes(index));
    for (const [label, list] of [["reads", node.operands.map(operand => nodes[operand]).filter(Boolean)], ["read by", users]]) {
      const shown = list.slice(0, 24).flatMap((other, i) => [i ? ", " : "", this.link(other.name)]);
      this.add(facts, label, ...shown, list.length > 24 ? ` and ${list.length - 24} others` : "");
    }
    const parts = [element("p", {}, element("span", {class: "chip"}, pane.title)),
      element("h2", {class: "formula"}, `%${node.name}`), facts];
    if (node.regions.length) parts.push(element("ul", {class: "names"}, ...node.regions.map(number =>
      element("li", {}, element("button", {class: "link", onclick: () => this.page.select(number)}, this.page.regions[number].formula)))));
    if (node.members.length) parts.push(this.folded(`computes ${node.members.length} instructions`, true,
      element("table", {}, ...node.members.map(member =>
        element("tr", {}, element("th", {}, member.opcode), element("td", {}, `${member.shape} %${member.name}`))))));
    this.root.replaceChildren(...parts);
    this.root.scrollTop = 0;
  }

  add(facts, label, ...values) {
    if (!values.some(Boolean)) return;
    facts.append(element("dt", {}, label), element("dd", {}, ...values));
  }

  folded(title, open, content) {
    return element("details", {open: open && "open"}, element("summary", {}, title), content);
  }

  /** A name that goes to its instruction in whichever graph has it; plain text where none has. */
  link(name) {
    if (!this.page.find(name)) return document.createTextNode(`%${name}`);
    return element("button", {class: "link", onclick: () => this.page.goTo(name)}, `%${name}`);
  }
}
