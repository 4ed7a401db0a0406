import { parser } from '@prometheus-io/lezer-promql';

/** What a query asks for. */
export interface Query {
  /** By name, with the labels that it is asked for by. */
  selectors: { name: string; labels: string[] }[];
  /** Labels that it groups or matches by. */
  groupedBy: string[];
}

/** Takes a PromQL expression apart, with Prometheus's own grammar. @throws Error where it is none */
export function parseQuery(expression: string): Query {
  const query: Query = { selectors: [], groupedBy: [] };
  let grouping = false;
  parser.parse(expression).iterate({
    enter: ({ name, from, to, type }) => {
      const text = expression.slice(from, to);
      if (type.isError) throw new Error(`no PromQL at ${from}: ${expression}`);
      if (name === 'GroupingLabels') grouping = true;
      else if (name === 'LabelMatchers') grouping = false;
      else if (name === 'Identifier') query.selectors.push({ name: text, labels: [] });
      else if (name === 'LabelName') {
        if (grouping) query.groupedBy.push(text);
        else query.selectors.at(-1)?.labels.push(text);
      }
    },
    leave: ({ name }) => {
      if (name === 'GroupingLabels') grouping = false;
    },
  });
  return query;
}
