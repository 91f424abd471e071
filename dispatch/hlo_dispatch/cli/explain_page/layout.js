"use strict";
// A layered layout: rows by longest path, order within a row by the middle of the neighbours, places by least
// displacement. Edges that skip rows run through invisible nodes, so that they keep out of the others' way.

const WIDTH = 204, HEIGHT = 38, ROW = 15, GAP_X = 22, GAP_Y = 26, LANE = 10, LONGEST_LANE = 80, SWEEPS = 6;
const RENAMING = new Set(["bitcast", "get-tuple-element", "tuple", "copy-done"]);
const INPUT = new Set(["parameter", "constant", "iota"]);

/** Drawn instructions and their inputs, with hidden instructions peeled. */
function visibleGraph(graph, everything) {
  const nodes = graph.nodes, last = nodes.length - 1, sources = new Map(), visible = [];
  nodes.forEach((node, index) => {
    const operands = node.operands.flatMap(operand => operand < nodes.length ? sources.get(operand) : []);
    const hidden = !everything && !node.regions.length && index !== last
      && (INPUT.has(node.opcode) || RENAMING.has(node.opcode));
    if (!hidden) visible.push({index, from: [...new Set(operands)]});
    sources.set(index, hidden ? (INPUT.has(node.opcode) ? [] : operands) : [index]);
  });
  return visible;
}

/** {items, edges, width, height}: an item has x, y (its middle's x, its top), width, height and `index` in the graph. */
function layOut(graph, everything, heightOf) {
  const items = [], byIndex = new Map();
  for (const {index, from} of visibleGraph(graph, everything)) {
    const item = {index, row: 0, width: WIDTH, height: heightOf(index), above: [], below: [], x: 0, y: 0};
    byIndex.set(index, item);
    items.push(item);
    item.from = from.map(source => byIndex.get(source));
  }
  assignRows(items);
  findSpine(items);
  const {rows, edges} = withLanes(items);
  orderRows(rows);
  placeRows(rows);
  const left = Math.min(0, ...rows.map(row => row[0].x - row[0].width / 2));
  let y = 0, width = WIDTH;
  for (const row of rows) {
    const tallest = row.reduce((most, item) => Math.max(most, item.height), 0);
    for (const item of row) {
      item.x -= left;
      item.y = y;
      if (item.index === undefined) item.height = tallest;
      width = Math.max(width, item.x + item.width / 2);
    }
    y += tallest + GAP_Y + Math.min(40, row.length);
  }
  return {items, edges, rows, width, height: Math.max(y - GAP_Y, HEIGHT)};
}

function assignRows(items) {
  for (const item of items) for (const source of item.from) item.row = Math.max(item.row, source.row + 1);
  // What is ready early (a re-ordered weight) stands right above its first user.
  const latest = new Map();
  for (let i = items.length - 1; i >= 0; i--) {
    const item = items[i];
    if (latest.has(item)) item.row = latest.get(item) - 1;
    for (const source of item.from) latest.set(source, Math.min(latest.get(source) ?? Infinity, item.row));
  }
}

/** The longest paths through the graph are its spine, which is drawn straight; the rest hangs on it. */
function findSpine(items) {
  const below = new Map();
  for (const item of items) {
    item.depth = 0;
    for (const source of item.from) item.depth = Math.max(item.depth, source.depth + 1);
  }
  for (let i = items.length - 1; i >= 0; i--) {
    const item = items[i], own = below.get(item) ?? 0;
    item.weight = item.depth + own;
    for (const source of item.from) below.set(source, Math.max(below.get(source) ?? 0, own + 1));
  }
  const longest = items.reduce((most, item) => Math.max(most, item.weight), 1);
  for (const item of items) item.weight = item.weight === longest ? 60 : 1;
}

function withLanes(items) {
  const rows = [], edges = [];
  const put = item => { (rows[item.row] ??= []).push(item); };
  items.forEach(put);
  for (const item of items) for (const source of item.from) {
    const edge = {source, target: item, lane: []};
    let previous = source;
    if (item.row - source.row <= LONGEST_LANE) {
      for (let row = source.row + 1; row < item.row; row++) {
        const lane = {row, weight: 0.5, width: LANE, height: 0, above: [previous], below: [], x: 0, y: 0};
        previous.below.push(lane);
        put(lane);
        edge.lane.push(lane);
        previous = lane;
      }
      previous.below.push(item);
      item.above.push(previous);
    }
    edges.push(edge);
  }
  for (let i = 0; i < rows.length; i++) rows[i] ??= [];
  return {rows: rows.filter(row => row.length), edges};
}

function orderRows(rows) {
  const number = row => row.forEach((item, place) => { item.place = place; });
  rows.forEach(number);
  const sort = (row, side) => {
    for (const item of row) {
      const near = item[side];
      item.wish = near.length ? near.reduce((sum, other) => sum + other.place, 0) / near.length : item.place;
    }
    row.sort((a, b) => a.wish - b.wish || a.place - b.place);
    number(row);
  };
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    if (sweep % 2 === 0) for (let i = 1; i < rows.length; i++) sort(rows[i], "above");
    else for (let i = rows.length - 2; i >= 0; i--) sort(rows[i], "below");
  }
}

function placeRows(rows) {
  for (const row of rows) settle(row, row.map(() => 0));
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (let i = 0; i < rows.length; i++) {
      const row = rows[down ? i : rows.length - 1 - i];
      const wishes = row.map(item => {
        const near = down ? item.above : item.below;
        if (!near.length) return item.x;
        // Follow the spine's neighbour: an average with what hangs at the side would drift away.
        const total = near.reduce((sum, other) => sum + other.weight ** 2, 0);
        return near.reduce((sum, other) => sum + other.x * other.weight ** 2, 0) / total;
      });
      settle(row, wishes);
    }
  }
}

/** Give each item of a row the x nearest to its wish that keeps the order and the distances (pooling neighbours). */
function settle(row, wishes) {
  let offset = 0;
  const blocks = [];
  row.forEach((item, i) => {
    if (i) offset += (row[i - 1].width + item.width) / 2 + GAP_X;
    item.offset = offset;
    const weight = item.weight;
    blocks.push({sum: (wishes[i] - offset) * weight, weight, items: [item]});
    while (blocks.length > 1) {
      const last = blocks[blocks.length - 1], before = blocks[blocks.length - 2];
      if (before.sum / before.weight <= last.sum / last.weight) break;
      blocks.pop();
      before.sum += last.sum;
      before.weight += last.weight;
      before.items.push(...last.items);
    }
  });
  for (const block of blocks) for (const item of block.items) item.x = block.sum / block.weight + item.offset;
}
