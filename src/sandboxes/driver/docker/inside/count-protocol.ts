/** The exit code of a counter whose folders exceed the limit. */
export const TOO_MUCH = 3;
