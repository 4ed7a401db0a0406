import { afterAll, beforeAll, test } from '@jest/globals';
import { Rig } from './support/rig.js';
import { stdioServer, httpServer } from './support/mcp-servers.js';
let rig: Rig;
beforeAll(async () => {
  rig = await Rig.start();
}, 120000);
afterAll(async () => {
  await rig.stop();
});
test.each((process.env.TRY ?? 'anthropic').split(','))(
  '%s',
  async (provider) => {
    const model = {
      anthropic: 'claude-scripted',
      openai: 'gpt-5.1-scripted',
      google: 'gemini-scripted',
      opencode: process.env.OCMODEL ?? 'anthropic/claude-scripted',
    }[provider];
    const t0 = Date.now();
    const s = await rig.session(
      {
        provider,
        model,
        system: 'System words word-system.',
        mcp_servers: process.env.MCP
          ? [stdioServer('pipes'), httpServer('wires', rig.model.url)]
          : [],
        skills: [
          {
            name: 'juggling',
            description: 'How to juggle word-skill',
            content: 'Throw three balls.',
          },
        ],
      },
      process.env.P1 ??
        'word-apple %%shell echo hello from the first turn > note.txt; echo wrote%%',
    );
    const r = await rig.finish(s);
    console.log(Date.now() - t0, 'ms', JSON.stringify(r.terminal));
    for (const e of r.events) console.log(JSON.stringify(e).slice(0, 700));
    if (r.terminal?.code === 0) {
      await rig.prompt(s, process.env.P2 ?? '/word-banana %%shell cat note.txt%%');
      const t1 = Date.now();
      const r2 = await rig.finish(s, r.terminal?.id);
      console.log(Date.now() - t1, 'ms second', JSON.stringify(r2.terminal));
      for (const e of r2.events) console.log(JSON.stringify(e).slice(0, 700));
    }
    console.log(
      rig.model.requests.map((q) => q.path + ' ' + q.authorized + ' ' + q.text.length).join('\n'),
    );
    if (process.env.DUMP)
      console.log(
        rig.model.requests
          .map((q) => q.text)
          .join('\n\n')
          .slice(0, Number(process.env.DUMP)),
      );
    console.log((await rig.service.http.get('/sessions/' + s.id)).text);
    console.log(rig.service.logs().split('\n').slice(-40).join('\n'));
    await rig.remove(s);
  },
  240000,
);
