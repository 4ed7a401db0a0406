import type { ComponentChildren } from 'preact';
import type { Identified } from '../lib/pages.js';

/** A column of a {@link DataTable}. */
export interface Column<T> {
  /** Empty for a column of buttons. */
  head: string;
  cell: (item: T) => ComponentChildren;
  /** Of the cells, besides their own. `number` aligns them to the right. */
  class?: string;
  /** What stands below the items. */
  total?: ComponentChildren;
}

/**
 * A table for many figures. Where there is no room for its columns, each item is a block with its heads beside what is
 * below them, so that nobody has to scroll sideways.
 */
export function DataTable<T extends Identified>(props: {
  columns: readonly Column<T>[];
  items: readonly T[];
}) {
  const { columns, items } = props;
  return (
    <div class="table-room">
      <table class="figures-table">
        <thead>
          <tr>
            {columns.map(({ head, class: look }) => (
              <th key={head} class={look}>
                {head === '' ? <span class="unseen">Actions</span> : head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {items.map((item) => (
            <tr key={item.id}>
              {columns.map(({ head, class: look, cell }) => (
                <td key={head} class={look} data-head={head}>
                  <div>{cell(item)}</div>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
        {columns.some(({ total }) => total !== undefined) && (
          <tfoot>
            <tr>
              {columns.map(({ head, class: look, total }) => (
                <td key={head} class={look} data-head={head}>
                  <div>{total}</div>
                </td>
              ))}
            </tr>
          </tfoot>
        )}
      </table>
    </div>
  );
}
