"use strict";
// The page: reads the data, keeps the selection, connects list, panes and panel.

// Neighbors in a program get different colors; amber is reserved for regions left to XLA.
const COLOURS = ["--r0", "--r1", "--r2", "--r3", "--r4", "--r5"];

class Page {
  constructor(data) {
    this.data = data;
    this.regions = data.regions;
    this.regionNumber = null;
    this.node = null;
    for (const graph of [...data.before, ...data.after]) this.unpack(graph);
    const dispatched = this.regions.map((region, number) => region.kernel ? number : -1).filter(number => number >= 0);
    this.colours = this.regions.map((region, number) =>
      region.kernel ? `var(${COLOURS[dispatched.indexOf(number) % COLOURS.length]})` : region.missed ? "var(--missed)" : "var(--left)");
    this.panel = new Panel(document.getElementById("panel"), this);
    const after = data.after.length ? data.after : null;
    this.panes = [new Pane(document.getElementById("before"), "before", data.before, this)];
    if (after) this.panes.push(new Pane(document.getElementById("after"), "after", after, this));
    this.setUp(Boolean(after));
  }

  /** Lists of the page's data → objects with names. */
  unpack(graph) {
    const text = this.data.strings;
    graph.nodes = graph.nodes.map(([name, opcode, shape, operands, regions, opName, rows, target]) => ({
      name: text[name], opcode: text[opcode], shape: text[shape], operands, regions, opName: text[opName], target: text[target],
      members: rows.map(([name, opcode, shape, region]) => ({name: text[name], opcode: text[opcode], shape: text[shape], region})),
    }));
  }

  setUp(hasAfter) {
    document.getElementById("module").textContent = this.data.module;
    document.getElementById("summary").textContent = this.data.summary.replace(`${this.data.module}: `, "");
    const names = this.data.before.map(graph => graph.name);
    const choice = document.getElementById("computation");
    choice.append(...names.map((name, number) => element("option", {value: name}, number ? name : `${name} (entry)`)));
    choice.onchange = () => this.open(choice.value);
    document.getElementById("computation-label").hidden = names.length < 2;
    document.getElementById("everything").onchange = event => {
      for (const pane of this.panes) { pane.everything = event.target.checked; pane.arrange(); pane.start(); }
    };
    this.choose("status", "all", () => this.list());
    this.choose("shown", hasAfter ? "both" : "before", value => this.showPanes(value));
    document.getElementById("shown").hidden = !hasAfter;
    document.getElementById("filter").oninput = () => this.list();
    document.addEventListener("keydown", event => { if (event.key === "Escape") this.clear(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.panes.forEach(pane => pane.drawMap()));
    this.open(names[0]);
    this.list();
    this.panel.showNothing();
  }

  /** A row of buttons of which one is pressed. */
  choose(id, value, changed) {
    const buttons = [...document.getElementById(id).children];
    const press = pressed => {
      for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.value === pressed);
      changed(pressed);
    };
    for (const button of buttons) button.onclick = () => press(button.dataset.value);
    press(value);
  }

  showPanes(value) {
    document.getElementById("before").hidden = value === "after";
    document.getElementById("after").hidden = value === "before" || this.panes.length < 2;
    this.panes.forEach(pane => pane.draw());
  }

  open(name) {
    this.computation = name;
    document.getElementById("computation").value = name;
    this.panes.forEach(pane => pane.show(name));
  }

  // --- the list ---------------------------------------------------------------------------------------------

  list() {
    const words = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const status = document.querySelector("#status [aria-pressed=true]").dataset.value;
    const shown = this.regions.map((region, number) => ({region, number})).filter(({region}) => {
      if (status !== "all" && (status === "dispatched") !== Boolean(region.kernel)) return false;
      const text = `${region.formula} ${region.shape} ${region.name} ${region.opName} ${region.source} ${region.kernel} `
        + `${region.implementation} ${region.why}`.toLowerCase();
      return words.every(word => text.toLowerCase().includes(word));
    });
    const rows = shown.map(({region, number}) => {
      const dot = element("i", {});
      dot.style.background = this.colour(number);
      const row = element("button", {"data-region": String(number), onclick: () => this.select(number)},
        dot, element("b", {}, region.formula), element("span", {}, region.shape),
        element("small", {}, region.opName.replace(/^jit\([^)]*\)\//, "") || region.sourceEnd || `%${region.name}`));
      row.setAttribute("aria-current", number === this.regionNumber);
      return element("li", {}, row);
    });
    const nothing = element("li", {class: "nothing"}, this.regions.length ? "no region fits" : "no region that a kernel could take");
    document.getElementById("regions").replaceChildren(...(rows.length ? rows : [nothing]));
  }

  // --- selection --------------------------------------------------------------------------------------------

  select(number) {
    this.regionNumber = number;
    this.node = null;
    const region = this.regions[number];
    if (region.computation !== this.computation) this.open(region.computation);
    for (const pane of this.panes) {
      pane.reveal(pane.graph.nodes.flatMap((node, index) => node.regions.includes(number) ? [index] : []));
      pane.draw();
    }
    this.panel.showRegion(number);
    this.current();
  }

  pick(pane, index, row) {
    const node = pane.graph.nodes[index];
    const number = row !== null && node.members[row].region >= 0 ? node.members[row].region : node.regions[0];
    const again = number !== undefined && number === this.regionNumber && this.node === null;
    if (number !== undefined && !again) {
      this.regionNumber = number;
      this.node = null;
      this.panel.showRegion(number);
      for (const other of this.panes) if (other !== pane) {
        other.reveal(other.graph.nodes.flatMap((node, i) => node.regions.includes(number) ? [i] : []));
      }
    } else {
      this.regionNumber = null;
      this.node = {pane, index};
      this.panel.showNode(pane, index);
    }
    this.current();
    this.panes.forEach(other => other.draw());
  }

  clear() {
    this.regionNumber = this.node = null;
    this.panel.showNothing();
    this.current();
    this.panes.forEach(pane => pane.draw());
  }

  current() {
    for (const row of document.querySelectorAll("[data-region]")) {
      const isCurrent = Number(row.dataset.region) === this.regionNumber;
      row.setAttribute("aria-current", isCurrent);
      if (isCurrent) row.scrollIntoView({block: "nearest"});
    }
  }

  selection(pane) {
    return {region: this.regionNumber, node: this.node && this.node.pane === pane ? this.node.index : null};
  }

  /** {pane, graph, index} of the instruction, or of the fusion that contains it. */
  find(name) {
    this.places ??= this.index();
    return this.places.get(name);
  }

  index() {
    const places = new Map(), note = (name, place) => { if (!places.has(name)) places.set(name, place); };
    for (const pane of this.panes) for (const graph of pane.graphs) {
      graph.nodes.forEach((node, index) => note(node.name, {pane, graph, index}));
      graph.nodes.forEach((node, index) => node.members.forEach(member => note(member.name, {pane, graph, index})));
    }
    return places;
  }

  goTo(name) {
    const {pane, graph, index} = this.find(name);
    if (graph.name !== this.computation) this.open(graph.name);
    if (!pane.itemOf.has(index)) {
      document.getElementById("everything").click();
    }
    pane.reveal([index]);
    this.regionNumber = null;
    this.node = {pane, index};
    this.panel.showNode(pane, index);
    this.current();
    this.panes.forEach(other => other.draw());
  }

  // --- text of a box --------------------------------------------------------------------------------------

  colour(number) { return number === undefined || number < 0 ? "" : this.paint(number); }

  paint(number) { return this.colours[number]; }

  isWhole(node) { return !node.members.length || node.members.every(member => member.region >= 0); }

  label(node) {
    if (node.target && node.regions.length) {
      const region = this.regions[node.regions[0]];
      return [region.formula, `${region.kernel.split(".").pop()} ${region.shape}`];
    }
    return [node.opcode === "fusion" ? node.name : node.opcode, node.shape];
  }
}

const page = new Page(JSON.parse(document.getElementById("data").textContent));
