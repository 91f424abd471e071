"use strict";
// One pane: a graph that is panned and zoomed. Only what can be seen is in the document, so a graph of many
// thousand instructions scrolls like one of ten.

const MARGIN = 24, READABLE = 0.32, SMALLEST_WHOLE = 0.12;

class Pane {
  constructor(element, title, graphs, page) {
    this.element = element;
    this.title = title;
    this.graphs = graphs;
    this.page = page;
    this.open = new Set();
    this.everything = false;
    element.innerHTML = `<div class="bar"><b></b><span></span><div class="zoom"><button title="Zoom out">−</button>`
      + `<button title="Fit the graph, or its width">fit</button><button title="Zoom in">+</button></div></div>`
      + `<svg class="graph" tabindex="0"><g class="scene"></g></svg><canvas class="map"></canvas>`;
    this.svg = element.querySelector("svg");
    this.scene = element.querySelector(".scene");
    this.map = element.querySelector(".map");
    const [out, fit, into] = element.querySelectorAll(".zoom button");
    out.onclick = () => this.zoom(1 / 1.4);
    into.onclick = () => this.zoom(1.4);
    fit.onclick = () => this.fit();
    this.listen();
    new ResizeObserver(() => this.draw()).observe(element);
  }

  show(name) {
    this.graph = this.graphs.find(graph => graph.name === name) ?? this.graphs[0];
    this.open.clear();
    this.arrange();
    this.start();
  }

  arrange() {
    const nodes = this.graph.nodes;
    this.layout = layOut(this.graph, this.everything, index =>
      HEIGHT + (this.open.has(index) ? nodes[index].members.length * ROW + 6 : 0));
    this.itemOf = new Map(this.layout.items.map(item => [item.index, item]));
    this.drawn = new Map();
    this.scene.replaceChildren();
    const cut = this.graph.total > nodes.length ? ` (the first ${nodes.length.toLocaleString()} are drawn)` : "";
    this.element.querySelector("b").textContent = this.title;
    this.element.querySelector(".bar span").textContent = `${this.graph.total.toLocaleString()} instructions${cut}`;
    this.edgesByRow = this.spread();
    this.drawMap();
  }

  /** Every stroke of every edge with the rows it crosses, for drawing only what is in sight. */
  spread() {
    return this.layout.edges.map(edge => {
      const points = [[edge.source.x, edge.source.y + edge.source.height]];
      for (const lane of edge.lane) points.push([lane.x, lane.y], [lane.x, lane.y + lane.height]);
      points.push([edge.target.x, edge.target.y]);
      let path = `M${points[0]}`;
      for (let i = 1; i < points.length; i += 2) {
        const [x0, y0] = points[i - 1], [x1, y1] = points[i], middle = (y0 + y1) / 2;
        path += `C${x0},${middle} ${x1},${middle} ${x1},${y1}`;
        if (i + 1 < points.length) path += `L${points[i + 1]}`;
      }
      return {edge, path, top: points[0][1], bottom: edge.target.y};
    });
  }

  // --- looking around ---------------------------------------------------------------------------------------

  get size() { return {width: this.svg.clientWidth || 1, height: this.svg.clientHeight || 1}; }

  start() {
    const {width} = this.size;
    this.scale = Math.min(1, Math.max(0.6, (width - 2 * MARGIN) / this.layout.width));
    const spine = this.layout.items.reduce((best, item) => item.weight > best.weight ? item : best, {weight: 0, x: 0});
    const narrow = this.layout.width * this.scale <= width - 2 * MARGIN;
    this.x = narrow ? (width - this.layout.width * this.scale) / 2 : width / 2 - spine.x * this.scale;
    this.y = MARGIN;
    this.draw();
  }

  fit() {
    const {width, height} = this.size;
    const across = Math.min(1.2, (width - 2 * MARGIN) / this.layout.width);
    const whole = Math.min(across, (height - 2 * MARGIN) / this.layout.height);
    const middle = (height / 2 - this.y) / this.scale;
    // A deep network as a whole is a thread, and the map at the edge shows it: then its width is fitted.
    const isDeep = whole < SMALLEST_WHOLE;
    this.scale = isDeep ? Math.max(SMALLEST_WHOLE, across) : whole;
    this.x = (width - this.layout.width * this.scale) / 2;
    this.y = isDeep ? Math.min(MARGIN, height / 2 - middle * this.scale) : (height - this.layout.height * this.scale) / 2;
    this.draw();
  }

  zoom(factor, x = this.size.width / 2, y = this.size.height / 2) {
    const scale = Math.min(2.5, Math.max(0.01, this.scale * factor));
    this.x = x - (x - this.x) * scale / this.scale;
    this.y = y - (y - this.y) * scale / this.scale;
    this.scale = scale;
    this.draw();
  }

  /** Bring these instructions into sight. */
  reveal(indices) {
    const items = indices.map(index => this.itemOf.get(index)).filter(Boolean);
    if (!items.length) return;
    const {width, height} = this.size;
    const left = Math.min(...items.map(item => item.x - item.width / 2));
    const right = Math.max(...items.map(item => item.x + item.width / 2));
    const top = Math.min(...items.map(item => item.y)), bottom = Math.max(...items.map(item => item.y + item.height));
    this.scale = Math.max(0.35, Math.min(1, (width - 60) / (right - left), (height - 60) / (bottom - top)));
    this.x = width / 2 - (left + right) / 2 * this.scale;
    const tall = (bottom - top) * this.scale > height - 60;
    this.y = tall ? MARGIN - top * this.scale : height / 2 - (top + bottom) / 2 * this.scale;
    this.draw();
  }

  listen() {
    const svg = this.svg;
    let from = null, moved = false;
    svg.addEventListener("wheel", event => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) {
        const box = svg.getBoundingClientRect();
        this.zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
      } else {
        this.x -= event.deltaX;
        this.y -= event.deltaY;
        this.draw();
      }
    }, {passive: false});
    svg.addEventListener("pointerdown", event => { from = [event.clientX - this.x, event.clientY - this.y]; moved = false; });
    svg.addEventListener("pointermove", event => {
      if (!from || !event.buttons) return;
      const x = event.clientX - from[0], y = event.clientY - from[1];
      if (!moved && Math.hypot(x - this.x, y - this.y) < 4) return;
      if (!moved) svg.setPointerCapture(event.pointerId);
      moved = true;
      [this.x, this.y] = [x, y];
      this.draw();
    });
    svg.addEventListener("pointerup", () => { from = null; });
    svg.addEventListener("click", event => {
      if (moved) return;
      const node = event.target.closest("[data-index]"), row = event.target.closest("[data-row]");
      if (!node) return this.page.clear();
      const index = Number(node.dataset.index);
      if (event.target.closest(".toggle")) this.toggle(index);
      else this.page.pick(this, index, row ? Number(row.dataset.row) : null);
    });
    svg.addEventListener("dblclick", event => {
      const node = event.target.closest("[data-index]");
      if (node && this.graph.nodes[Number(node.dataset.index)].members.length) this.toggle(Number(node.dataset.index));
    });
    svg.addEventListener("keydown", event => {
      const step = {ArrowUp: [0, 60], ArrowDown: [0, -60], ArrowLeft: [60, 0], ArrowRight: [-60, 0]}[event.key];
      if (step) { this.x += step[0]; this.y += step[1]; this.draw(); }
      else if (event.key === "+" || event.key === "=") this.zoom(1.4);
      else if (event.key === "-") this.zoom(1 / 1.4);
      else return;
      event.preventDefault();
    });
    this.map.addEventListener("pointerdown", event => this.jump(event));
    this.map.addEventListener("pointermove", event => { if (event.buttons) this.jump(event); });
  }

  toggle(index) {
    const before = this.itemOf.get(index), x = before.x, y = before.y;
    if (!this.open.delete(index)) this.open.add(index);
    this.arrange();
    const after = this.itemOf.get(index);
    // It stays under the pointer.
    this.x += (x - after.x) * this.scale;
    this.y += (y - after.y) * this.scale;
    this.draw();
  }

  // --- drawing ----------------------------------------------------------------------------------------------

  draw() {
    if (!this.layout || this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.paint(); });
  }

  paint() {
    const {height} = this.size;
    const top = (-this.y - 80) / this.scale, bottom = (height - this.y + 80) / this.scale;
    this.scene.setAttribute("transform", `translate(${this.x},${this.y}) scale(${this.scale})`);
    this.svg.classList.toggle("far", this.scale < READABLE);
    const wanted = new Map();
    for (const stroke of this.edgesByRow) {
      if (stroke.bottom >= top && stroke.top <= bottom) wanted.set(stroke, () => this.line(stroke));
    }
    for (const item of this.layout.items) {
      if (item.y + item.height >= top && item.y <= bottom) wanted.set(item, () => this.box(item));
    }
    for (const [key, element] of this.drawn) if (!wanted.has(key)) { element.remove(); this.drawn.delete(key); }
    for (const [key, make] of wanted) {
      if (this.drawn.has(key)) continue;
      const element = make();
      this.drawn.set(key, element);
      // Lines are under boxes.
      if (key.path) this.scene.prepend(element); else this.scene.append(element);
    }
    this.mark();
    this.drawFrame();
  }

  line(stroke) {
    const {source, target, lane} = stroke.edge, isLong = !lane.length && target.row - source.row > 1;
    const path = this.make("path", {class: isLong ? "edge long" : "edge", d: stroke.path});
    path.stroke = stroke;
    return path;
  }

  make(name, attributes, text) {
    // The namespace of the element in the page, so that none has to be written down.
    const element = document.createElementNS(this.svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  box(item) {
    const node = this.graph.nodes[item.index], left = item.x - item.width / 2;
    const group = this.make("g", {
      class: "node", "data-index": item.index, transform: `translate(${left},${item.y})`,
    });
    const [head, detail] = this.page.label(node);
    const colour = this.page.colour(node.regions[0]);
    if (colour) group.style.setProperty("--region", colour);
    group.classList.toggle("whole", Boolean(colour) && this.page.isWhole(node));
    group.classList.toggle("part", Boolean(colour) && !this.page.isWhole(node));
    group.classList.toggle("left", node.regions.length > 0 && !this.page.regions[node.regions[0]].kernel);
    group.append(this.make("rect", {class: "frame", width: item.width, height: item.height, rx: 6}));
    if (colour) group.append(this.make("rect", {class: "stripe", width: 6, height: item.height, rx: 3}));
    group.append(this.make("text", {class: "head", x: 13, y: 16}, fitted(head, node.members.length > 1 ? 22 : 26)));
    group.append(this.make("text", {class: "detail", x: 13, y: 30}, fitted(detail, 29)));
    if (node.members.length > 1) this.addMembers(group, item, node);
    group.append(this.make("title", {}, `%${node.name} = ${node.shape} ${node.opcode}`));
    return group;
  }

  addMembers(group, item, node) {
    const isOpen = this.open.has(item.index);
    const toggle = this.make("g", {class: "toggle", transform: `translate(${item.width - 30},5)`});
    toggle.append(this.make("rect", {width: 25, height: 15, rx: 7}));
    toggle.append(this.make("text", {x: 12.5, y: 11}, isOpen ? "–" : node.members.length));
    group.append(toggle);
    if (!isOpen) return;
    node.members.forEach((member, number) => {
      const row = this.make("g", {class: "row", "data-row": number, transform: `translate(8,${HEIGHT + number * ROW})`});
      const colour = this.page.colour(member.region);
      if (colour) row.style.setProperty("--region", colour);
      row.classList.toggle("held", Boolean(colour));
      row.append(this.make("rect", {width: item.width - 14, height: ROW, rx: 3}));
      row.append(this.make("text", {x: 6, y: 11}, fitted(`${member.opcode} ${member.shape}`, 32)));
      row.append(this.make("title", {}, `%${member.name} = ${member.shape} ${member.opcode}`));
      group.append(row);
    });
  }

  /** Show what is selected, on what is drawn already. */
  mark() {
    const {region, node} = this.page.selection(this);
    for (const [key, element] of this.drawn) {
      if (key.path) {
        const touches = key.edge.source.index === node || key.edge.target.index === node;
        element.classList.toggle("near", node !== null && touches);
      } else {
        const held = region !== null && this.graph.nodes[key.index].regions.includes(region);
        element.classList.toggle("selected", held || key.index === node);
        element.classList.toggle("faded", region !== null && !held);
      }
    }
  }

  // --- the small map ----------------------------------------------------------------------------------------

  drawMap() {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [this.map.clientWidth * 2 || 120, this.map.clientHeight * 2 || 600];
    const pen = canvas.getContext("2d");
    const [sx, sy] = this.mapScale(canvas);
    const style = getComputedStyle(this.element);
    const plain = style.getPropertyValue("--line");
    const resolve = colour => style.getPropertyValue(colour.slice(4, -1));  // "var(--r0)": a canvas knows no variables
    for (const item of this.layout.items) {
      const colour = this.page.colour(this.graph.nodes[item.index].regions[0]);
      pen.fillStyle = colour ? resolve(colour) : plain;
      pen.fillRect((item.x - item.width / 2) * sx, item.y * sy, Math.max(2, item.width * sx), Math.max(1.5, item.height * sy));
    }
    this.mapImage = canvas;
    this.drawFrame();
  }

  /** From the layout to the map: as wide as there is room; a small graph keeps its proportions. */
  mapScale(canvas) {
    const across = canvas.width / this.layout.width;
    return [across, Math.min(across, canvas.height / this.layout.height)];
  }

  drawFrame() {
    if (!this.mapImage || !this.map.clientWidth) return;
    if (this.mapImage.height !== this.map.clientHeight * 2) return this.drawMap();
    [this.map.width, this.map.height] = [this.mapImage.width, this.mapImage.height];
    const pen = this.map.getContext("2d"), {width, height} = this.size;
    pen.drawImage(this.mapImage, 0, 0);
    const [sx, sy] = this.mapScale(this.map).map(factor => factor / this.scale);
    pen.strokeStyle = getComputedStyle(this.element).getPropertyValue("--accent");
    pen.lineWidth = 3;
    const x = Math.max(1, -this.x * sx), y = Math.max(1, -this.y * sy);
    pen.strokeRect(x, y, Math.min(this.map.width - 2, (width - this.x) * sx) - x,
      Math.min(this.map.height - 2, (height - this.y) * sy) - y);
  }

  jump(event) {
    const box = this.map.getBoundingClientRect();
    const y = (event.clientY - box.top) * 2 / this.mapScale(this.map)[1];
    this.y = this.size.height / 2 - y * this.scale;
    this.draw();
  }
}

function fitted(text, most) { return text.length > most ? text.slice(0, most - 1) + "…" : text; }
