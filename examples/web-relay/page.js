// Starts a run and shows its events as they come. EventSource reconnects by itself, and says which event it had last.
const form = document.querySelector('#form');
const prompt = document.querySelector('#prompt');
const status = document.querySelector('#status');
const output = document.querySelector('#output');
let source;

form.addEventListener('submit', (submitted) => {
  submitted.preventDefault();
  start().catch(() => {
    status.textContent = 'Not available at the moment';
  });
});

async function start() {
  source?.close();
  output.textContent = '';
  const answer = await fetch('/runs', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ prompt: prompt.value }),
  });
  const body = await answer.json();
  if (answer.ok) watch(body.events);
  else status.textContent = body.error;
}

function watch(address) {
  source = new EventSource(address);
  source.addEventListener('message', ({ data }) => show(JSON.parse(data)));
  source.addEventListener('error', () => {
    const lost = source.readyState === EventSource.CLOSED;
    status.textContent = lost ? 'The run cannot be watched' : 'Reconnecting …';
  });
}

function show(event) {
  // Text, never HTML: agents print what they like.
  if (event.type === 'output') output.append(event.data);
  if (event.type === 'stage') status.textContent = `${event.stage}: ${event.state}`;
  if (event.type === 'turn_start') status.textContent = 'Running';
  if (event.type === 'exit') finish(event.code === 0 ? 'Done' : `Failed with ${event.code}`);
  if (event.type === 'error' || event.type === 'terminated') finish(event.message);
  // stale: still running. The stream ends, and EventSource comes again.
}

function finish(text) {
  status.textContent = text;
  // Else it would come again for ever.
  source.close();
}
