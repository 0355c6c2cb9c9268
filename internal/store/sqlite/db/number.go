package db

import "context"

// numberBlock is how many numbers the row of the table server reserves at a time. Assigning one of them needs no
// write of that row. Reserved numbers that a server has not assigned when it ends are never used.
const numberBlock = 4096

// numbers assigns the numbers of commits with events, of checkpoints and of packs. The numbers rise over the
// whole database, and none is used twice. For that, the row of the table server contains an upper bound of all
// assigned numbers: a transaction that assigns a number above the bound also stores a higher bound.
type numbers struct {
	// last is the number that was assigned last, bound the upper bound that is on disk.
	last, bound int64
}

// open begins with the bound that the transaction which raised the epoch has stored. The last numberBlock
// numbers up to it are reserved for this server.
func (n *numbers) open(bound int64) { n.last, n.bound = bound-numberBlock, bound }

// reserve raises the bound, within the open transaction, if a number above it was assigned. It returns the
// bound that is valid once the transaction is on disk.
func (n *numbers) reserve(ctx context.Context, w *writer) (bound int64, err error) {
	if n.last <= n.bound {
		return n.bound, nil
	}
	bound = n.last + numberBlock
	_, err = w.bound.ExecContext(ctx, bound)
	return bound, err
}

// NextNumber returns the next number, for a change of this transaction. It is above every number before. A change that is
// rolled back leaves a gap.
func (t *Tx) NextNumber() int64 {
	t.numbers.last++
	return t.numbers.last
}
