/**
 * Feeds a reference with messages. Servers that accept them by POST get them from a separate process. Others bring a
 * `feed` with the same methods.
 */
export function feedOf(reference, publisher) {
  const { port, publish, wrap } = reference;
  const start = (channels, more) =>
    publisher.call('start', { port, wrap, paths: channels.map(publish), ...more });
  return (
    reference.feed ?? {
      /** Called before there are readers. */
      open: async () => undefined,
      /** Sends at a fixed rate over all channels. */
      paced: (channels, rate) => start(channels, { rate }),
      /** Sends as many messages as `allow` permits. */
      saturate: (channels) => start(channels, {}),
      allow: (upTo) => publisher.call('allow', upTo),
      stop: () => publisher.call('stop'),
    }
  );
}
