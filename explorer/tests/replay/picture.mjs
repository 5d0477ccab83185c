// The picture of the replay in the documentation: node tests/replay/picture.mjs FILE.webp

import { writeFileSync } from "node:fs";
import { launch, open } from "../browser.mjs";
import { make } from "./made.mjs";
import { written } from "./pages.mjs";

const browser = await launch();
const viewport = { width: 1440, height: 900 };
const address = written("picture", make());
const page = await open(browser, "#step=71&at=0:0x44", { viewport }, address);
const png = await page.screenshot();
const webp = await page.evaluate(async (source) => {
  const image = new Image();
  image.src = source;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext("2d").drawImage(image, 0, 0);
  const blob = await canvas.convertToBlob({ type: "image/webp", quality: 0.85 });
  return [...new Uint8Array(await blob.arrayBuffer())];
}, `data:image/png;base64,${png.toString("base64")}`);
writeFileSync(process.argv[2], Buffer.from(webp));
await browser.close();
