// Whether a value was made by a product: of the register that is shown, in the lane that
// is looked at, and of the element of memory that is pinned.

import { byId, h } from "../../src/page/dom.js";
import type { Made } from "../recording/origins.js";
import type { Where } from "../recording/products.js";
import { grouped } from "../session/names.js";
import type { Session } from "../session/session.js";
import { shownRegister } from "./warp.js";

/** Products that are named at most. */
const MOST = 4;

export function listenToMade(session: Session): void {
  if (!session.products) return;
  let [lane, byte] = ["", ""];
  session.listen(() => {
    const { warp, step, at } = session;
    const register = shownRegister(session);
    const now = [warp, step, session.lane, register].join();
    if (now !== lane) show(session, "lane-made", register < 0 ? [] : ofRegister(session, register));
    lane = now;
    const here = `${at?.memory} ${at?.offset} ${step}`;
    if (here !== byte) show(session, "byte-made", at ? session.origins.madeOf({ kind: "memory", ...at, bytes: 1, step }) : []);
    byte = here;
  });
}

/** Elements of D in a register of the lane: several, if they are narrow. */
function ofRegister(session: Session, register: number): Made[] {
  const { run, warp, lane, step } = session;
  const { bits, type } = run.head.registers[register];
  if (type === "pred") return [];
  const held = run.heldBy(warp, register, step, lane);
  // What was only loaded or computed is not searched for: that is for the memory.
  const unit = held ? run.unitAt(held.at) : -1;
  const opcode = unit >= 0 ? run.head.units[unit].name : held && held.step >= 0 ? run.site(held.step).opcode : "";
  if (!held || !/mma|^mov|^cvt/.test(opcode)) return [];
  const parts = bits === 32 && /^wgmma|^mma|^wmma/.test(opcode) ? [0, 16] : [0];
  const where = (low: number): Where => ({ kind: "register", warp, register, lane, low, bits: Math.min(32, bits), step });
  const found = parts.flatMap((low) => session.origins.madeOf(where(low)));
  return found.filter(({ step: at, index }, place) => found.findIndex((each) => each.step === at && each.index === index) === place);
}

function show(session: Session, id: string, made: Made[]): void {
  const box = byId(id);
  box.hidden = !made.length;
  const buttons = made.slice(0, MOST).flatMap((each) => {
    const product = session.products!.at(each.step);
    const [, row, col] = product.scene.matrices.get("D")!.spot(each.index);
    const name = product.name.split(".")[0];
    return [
      " ",
      h(
        "button",
        { type: "button", class: "go", onclick: () => session.explain(each) },
        `D[${row}, ${col}] of the ${name} at step ${grouped(each.step)}`,
      ),
    ];
  });
  const many = made.length > MOST ? ` and ${made.length - MOST} more` : "";
  box.replaceChildren("Made of", ...buttons, many);
}
