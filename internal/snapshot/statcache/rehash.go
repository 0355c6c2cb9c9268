package statcache

import "time"

// Rehash says which files are read although nothing says that they changed. The numbers from 0 to 2^32 form a
// circle; every file has a place on it. Each scan takes the next part of it: at least a fiftieth, and all of it in a day.
//
// Between two scans the looks of a Memo take parts of the circle, too, if no file of the tree lies in them; they are
// noted in memory only. If the server ends, the next scan begins where the last scan ended: files are read later than
// after 50 looks, but within a day, because the time is that of the last scan, too.
type Rehash struct {
	from, part uint64
	// Head has the place on the circle, and the time, at which the next part begins.
	Head Head
}

// Each file is read again at least once in RehashScans scans and looks of one run of the server, and at least once in
// RehashTime if its tree is scanned or looked at in that time.
const (
	RehashScans = 50
	RehashTime  = 24 * time.Hour
	circle      = 1 << 32
)

// NextRehash returns the part of the circle that follows the part of the last scan or look.
func NextRehash(last Head, now time.Time) Rehash {
	r := Rehash{from: uint64(last.Cursor) % circle, part: circle/RehashScans + 1}
	if since := now.Sub(time.Unix(0, last.Time)); since > 0 {
		share := float64(min(since, RehashTime)) / float64(RehashTime)
		r.part = max(r.part, uint64(share*circle)+1)
	}
	r.part = min(r.part, circle)
	r.Head = Head{Root: last.Root, Cursor: int64((r.from + r.part) % circle), Time: now.UnixNano()}
	return r
}

// Due reports whether the file with this inode lies in the part, so that it is read again even if its stat has not
// changed.
func (r Rehash) Due(ino uint64) bool { return (place(ino)%circle-r.from)%circle < r.part }

// place spreads the inodes over the circle: the output function of SplitMix64.
func place(ino uint64) uint64 {
	ino += 0x9e3779b97f4a7c15
	ino = (ino ^ ino>>30) * 0xbf58476d1ce4e5b9
	ino = (ino ^ ino>>27) * 0x94d049bb133111eb
	return ino ^ ino>>31
}
