// Starts a run and shows its events live. EventSource reconnects by itself and sends the id of the last event.
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
  // Inserts text instead of HTML, because agents may print anything.
  if (event.type === 'output') output.append(event.data);
  if (event.type === 'stage') status.textContent = `${event.stage}: ${event.state}`;
  if (event.type === 'turn_start') status.textContent = 'Running';
  if (event.type === 'exit') finish(event.code === 0 ? 'Done' : `Failed with ${event.code}`);
  if (event.type === 'error' || event.type === 'terminated') finish(event.message);
  // stale: the run continues. The stream ends, and EventSource reconnects.
}

function finish(text) {
  status.textContent = text;
  // Otherwise it would reconnect forever.
  source.close();
}
