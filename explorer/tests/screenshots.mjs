// Pictures of the page for people to look at: node tests/screenshots.mjs FOLDER
// A word after the folder chooses some of them.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { launch, open, pointAt } from "./browser.mjs";

const folder = process.argv[2] ?? "screenshots";
mkdirSync(folder, { recursive: true });

const DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
const SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32";
const WGMMA = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16";
const LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16";
const QUAD = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32";
const SCALED =
  "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3";
const TENSOR = "tcgen05.mma.cta_group::1.kind::f16 0x08400010";
const PAIR = "tcgen05.mma.cta_group::2.kind::mxf4.block_scale 0x08900480";
const LOAD = "tcgen05.ld.sync.aligned.16x256b.x2.b32";
const BITS = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc";

const SPARSE_TENSOR = "tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale 0x08900484";
const DESK = { width: 1440, height: 1700 };

/** name, hash, what to point at, settings of the browser */
const SHOTS = [
  ["explain", "#values=random&tab=explain&at=D.42", null, { viewport: DESK }],
  [
    "explain-scaled",
    `#op=${SCALED}&values=random&tab=explain&at=D.42`,
    null,
    { viewport: DESK, colorScheme: "dark" },
  ],
  ["first", "", ["A", 3, 5]],
  ["dark", "#values=small", ["D", 3, 5, true], { colorScheme: "dark" }],
  ["sparse", `#op=${SPARSE}&values=small&tab=metadata`, ["D", 3, 5, true]],
  [
    "sparse-illegal",
    `#op=${SPARSE}&values=small&tab=metadata&codes=0:0,9:5`,
    ["metadata", 0, 0, true],
  ],
  ["wgmma", `#op=${WGMMA}&tab=memory`, ["D", 20, 100]],
  [
    "wgmma-memory",
    `#op=${WGMMA}&tab=memory&memory=B.mn.128`,
    ["B", 3, 100, true],
    { colorScheme: "dark" },
  ],
  [
    "wgmma-close",
    `#op=${WGMMA}&zoom=5&values=small`,
    ["D", 40, 200, true],
    { viewport: { width: 1500, height: 950 } },
  ],
  ["mma-memory", `#op=${DENSE}&tab=memory&memory=A.k.0`],
  ["ldmatrix-memory", `#op=${LDMATRIX}&tab=memory&memory=D.k.64&at=D.77`],
  ["tensor-memory", `#op=${PAIR}&tab=memory`, null, { colorScheme: "dark" }],
  ["tensor", `#op=${TENSOR}&tab=tensor`, ["D", 40, 100, true]],
  ["tensor-pair", `#op=${PAIR}&tab=tensor`, ["scale_A", 100, 1]],
  ["tensor-dark", `#op=${TENSOR}&zoom=3`, ["A", 3, 5], { colorScheme: "dark" }],
  ["path", `#op=${TENSOR}&tab=path`, ["D", 40, 100, true], { viewport: DESK }],
  [
    "path-scaled",
    `#op=${PAIR}&tab=path`,
    ["D", 70, 40, true],
    { viewport: { ...DESK, height: 2200 }, colorScheme: "dark" },
  ],
  [
    "path-phone",
    `#op=${SPARSE_TENSOR}&tab=path&at=D.2084`,
    null,
    { viewport: { width: 390, height: 3600 }, colorScheme: "dark" },
  ],
  ["tensor-load", `#op=${LOAD}`, ["R", 3, 5]],
  ["ldmatrix", `#op=${LDMATRIX}&lane=13`],
  ["quad", `#op=${QUAD}&lane=13&tab=cuda`],
  ["scaled", `#op=${SCALED}&at=D.42`],
  ["bits", `#op=${BITS}&lane=5`],
  ["phone", "#lane=13", null, { viewport: { width: 390, height: 2000 } }],
  [
    "phone-dark",
    `#op=${SPARSE}&tab=metadata&at=D.20`,
    null,
    { viewport: { width: 390, height: 2000 }, colorScheme: "dark" },
  ],
  [
    "registers",
    "#colour=register&tab=ptx&zoom=1.5",
    null,
    { viewport: { width: 1150, height: 1500 } },
  ],
];

// High enough for the whole page: a full-page picture would move the pointer off.
const TALL = { width: 1500, height: 1900 };
const browser = await launch();
const only = process.argv[3] ?? "";
for (const [name, hash, spot, settings] of SHOTS) {
  if (!name.includes(only)) continue;
  const page = await open(browser, hash, { viewport: TALL, ...settings });
  if (spot) await pointAt(page, spot[0], spot[1], spot[2], { click: spot[3] });
  await page.waitForTimeout(150);
  await page.screenshot({ path: join(folder, `${name}.png`) });
  if (page.said.length) console.log(name, page.said);
  await page.context().close();
}
await browser.close();
