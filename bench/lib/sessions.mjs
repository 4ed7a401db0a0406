/** Creates a session that prints one line, and ends it. @returns milliseconds from the request to its output */
export async function timeSession(service, members = {}) {
  const begun = performance.now();
  const id = await service.run('echo hi', members);
  const response = await fetch(`${service.url}/sessions/${id}/stream`, {
    headers: { authorization: service.authorization },
  });
  let text = '';
  let at;
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    if (at === undefined && text.includes('"type":"output"')) at = performance.now();
  }
  if (at === undefined || !text.includes('"type":"exit"'))
    throw new Error(`the session did not end well:\n${text}`);
  // Otherwise its sandbox would be kept for the next prompt.
  await service.post(`/sessions/${id}/terminate`);
  return at - begun;
}
