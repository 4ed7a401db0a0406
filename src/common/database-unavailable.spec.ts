import { expect, test } from '@jest/globals';
import { isDatabaseUnavailable, isRepairable, isTransient, sqlStateOf } from './database-errors.js';

const sql = (code: string, severity = 'ERROR'): Error =>
  Object.assign(new Error('no'), { code, severity });
const socket = (code: string, syscall: string): Error =>
  Object.assign(new Error('no'), { code, syscall });
const wrapped = (driverError: Error): Error => Object.assign(new Error('no'), { driverError });

test.each([
  ['a deadlock', sql('40P01')],
  ['a serialization failure', sql('40001')],
  ['too many connections', sql('53300', 'FATAL')],
  ['out of memory', sql('53200')],
  ['a configured limit', sql('53400')],
  ['a shutdown', sql('57P01', 'FATAL')],
  ['a cancelled statement', sql('57014')],
  ['an I/O error', sql('58030')],
  ['a lock that was not to be had', sql('55P03')],
  ['a standby', sql('25006')],
  ['a password that is being changed', sql('28P01', 'FATAL')],
  ['a lost connection', sql('08006')],
  ['a reset', socket('ECONNRESET', 'read')],
  ['no file descriptors', socket('EMFILE', 'connect')],
  ['a pool that is busy', new Error('timeout exceeded when trying to connect')],
  ['a deadlock in the wrapping of the ORM', wrapped(sql('40P01'))],
])('%s passes', (_name, error) => {
  expect(isTransient(error)).toBe(true);
  expect(isRepairable(error)).toBe(true);
});

test.each([
  ['a day without a partition', sql('23514')],
  ['a missing right', sql('42501')],
  ['a missing table', sql('42P01')],
  ['a missing column', wrapped(sql('42703'))],
  ['a program limit', sql('54000')],
  ['an internal error', sql('XX000')],
  ['a damaged page', sql('XX001')],
])('%s is for an operator to repair', (_name, error) => {
  expect(isTransient(error)).toBe(false);
  expect(isRepairable(error)).toBe(true);
});

test.each([
  ['NUL in jsonb', sql('22P05')],
  ['a number out of range', sql('22003')],
  ['a constraint', Object.assign(sql('23514'), { constraint: 'turns_status_check' })],
  ['a trigger', sql('P0001')],
  ['an error in the ORM', wrapped(sql('23505'))],
  ['a mistake in the program', new TypeError('x is not a function')],
  ['a missing file', socket('ENOENT', 'open')],
  ['something that is no error', 'no'],
])('%s is permanent', (_name, error) => {
  expect(isTransient(error)).toBe(false);
  expect(isRepairable(error)).toBe(false);
  expect(isDatabaseUnavailable(error)).toBe(false);
});

test('errors of the database have their SQLSTATE, others have none', () => {
  expect(sqlStateOf(wrapped(sql('22P05')))).toBe('22P05');
  expect(sqlStateOf(socket('EPIPE', 'write'))).toBeUndefined();
  expect(sqlStateOf(new Error('no'))).toBeUndefined();
});
