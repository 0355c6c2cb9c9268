package holdfast

import "math"

// Sum adds counts of tokens, calls, milliseconds or millionths of a dollar. Models
// and agents report such counts and may lie: a negative count adds nothing, and a sum
// that does not fit stops at the largest number instead of wrapping around. All code
// that adds up usage must use Sum.
func Sum(counts ...int64) int64 {
	total := int64(0)
	for _, n := range counts {
		switch {
		case n <= 0:
		case n > math.MaxInt64-total:
			return math.MaxInt64
		default:
			total += n
		}
	}
	return total
}

// microUSD rounds an amount, in millionths of a dollar, up to a whole number. A negative amount becomes 0; an amount
// that does not fit an int64, or is not a number, becomes the largest int64.
func microUSD(amount float64) int64 {
	switch up := math.Ceil(amount); {
	case up <= 0:
		return 0
	case up < math.MaxInt64:
		return int64(up)
	}
	return math.MaxInt64
}
