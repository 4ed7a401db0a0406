export function markOf(pid: number): string | null;
export function stateOf(mark: string): 'alive' | 'dead' | 'unknown';
export function processesOf(folder: string): number[];
export function beginTestRun(): () => void;
