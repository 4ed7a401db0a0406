import { servePart } from './part.js';
import { Victims, type VictimsOptions } from './victims.js';

let victims: Victims | undefined;

function begun(): Victims {
  if (!victims) throw new Error('the victims have not begun');
  return victims;
}

servePart({
  start: async (options: VictimsOptions) => {
    victims = new Victims(options);
    await victims.start();
  },
  measure: (span: { from: number; to: number }) => begun().measure(span),
  silence: () => begun().silence(),
  calm: () => begun().calm(),
  finish: (how: { cutShort: boolean }) => begun().finish(how),
});
