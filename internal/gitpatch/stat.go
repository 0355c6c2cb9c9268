package gitpatch

import (
	"fmt"
	"strings"
)

// Bounds of the table.
const (
	tableWidth = 100
	// rowBytesMost is how much memory the rows may take. Further files are only counted.
	rowBytesMost = 16 << 20
)

// row is a line of the table: the lines that a text file gained and lost, or the sizes of a binary file.
type row struct {
	name           string
	added, removed int64
	binary         bool
}

// measure compares the two sides of a file, and adds its row to the table.
func (p *writer) measure(c Change) error {
	r := row{name: quote("", c.Path)}
	if err := p.compareSizes(c, &r); err != nil {
		return err
	}
	if p.rowBytes += len(r.name) + 64; p.rowBytes <= rowBytesMost {
		p.rows = append(p.rows, r)
	}
	return p.err()
}

func (p *writer) compareSizes(c Change, r *row) error {
	r.binary = c.Old.Size > LargeFile || c.New.Size > LargeFile
	if !r.binary {
		if err := p.old.load(c.Old, false); err != nil {
			return err
		}
		if err := p.now.load(c.New, false); err != nil {
			return err
		}
		r.binary = p.old.binary || p.now.binary
	}
	switch {
	case c.Same:
		return nil
	case r.binary:
		r.added, r.removed = c.New.Size, c.Old.Size
		return nil
	}
	added, removed := compare(p.old.data, p.now.data).count()
	r.added, r.removed = int64(added), int64(removed)
	p.sum.Insertions += added
	p.sum.Deletions += removed
	return nil
}

// table writes the rows as git diff --stat=100 does, and the sums.
func (p *writer) table() {
	if p.sum.Files == 0 {
		return
	}
	l := newLayout(p.rows)
	for _, r := range p.rows {
		l.row(p, r)
	}
	if hidden := p.sum.Files - len(p.rows); hidden > 0 {
		fmt.Fprintf(p.out, " ... and %d more\n", hidden)
	}
	fmt.Fprintf(p.out, " %d file%s changed", p.sum.Files, plural(p.sum.Files))
	added, removed := p.sum.Insertions, p.sum.Deletions
	if added > 0 || removed == 0 {
		fmt.Fprintf(p.out, ", %d insertion%s(+)", added, plural(added))
	}
	if removed > 0 || added == 0 {
		fmt.Fprintf(p.out, ", %d deletion%s(-)", removed, plural(removed))
	}
	fmt.Fprintln(p.out)
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// layout is the widths of the columns of the table; most is the number of changed lines whose bar fills the last
// column.
type layout struct {
	name, number, graph int
	most                int64
}

// newLayout chooses the widths as git does: the names get five eighths of a line if not all fits.
func newLayout(rows []row) layout {
	var l layout
	sizes := 0
	for _, r := range rows {
		l.name = max(l.name, len(r.name))
		if r.binary {
			sizes = max(sizes, 14+width(r.added)+width(r.removed))
			l.number = 3 // the width of the word Bin, shown for a binary file
			continue
		}
		l.most = max(l.most, r.added+r.removed)
	}
	l.number = max(l.number, width(l.most))
	l.graph = max(int(min(l.most, tableWidth)), sizes-4)
	rest := tableWidth - l.number - 6
	if l.name+l.graph > rest {
		l.graph = min(l.graph, max(tableWidth*3/8-l.number-6, 6))
		if l.name > rest-l.graph {
			l.name = rest - l.graph
		} else {
			l.graph = rest - l.name
		}
	}
	return l
}

func width(n int64) int { return len(fmt.Sprint(n)) }

// scale returns the length of a bar: 0 for 0, and at least 1 for anything else.
func (l layout) scale(n int64) int64 {
	if n == 0 {
		return 0
	}
	return 1 + n*int64(l.graph-1)/l.most
}

func (l layout) row(p *writer, r row) {
	name := r.name
	if len(name) > l.name {
		name = name[len(name)-max(l.name-3, 0):]
		if at := strings.IndexByte(name, '/'); at >= 0 {
			name = name[at:]
		}
		name = "..." + name
	}
	if r.binary {
		fmt.Fprintf(p.out, " %-*s | %*s", l.name, name, l.number, "Bin")
		if r.added > 0 || r.removed > 0 {
			fmt.Fprintf(p.out, " %d -> %d bytes", r.removed, r.added)
		}
		fmt.Fprintln(p.out)
		return
	}
	added, removed := r.added, r.removed
	if int64(l.graph) <= l.most {
		total := l.scale(added + removed)
		if total < 2 && added > 0 && removed > 0 {
			total = 2
		}
		if added < removed {
			added = l.scale(added)
			removed = total - added
		} else {
			removed = l.scale(removed)
			added = total - removed
		}
	}
	bar := strings.Repeat("+", int(added)) + strings.Repeat("-", int(removed))
	fmt.Fprintln(p.out, strings.TrimRight(fmt.Sprintf(" %-*s | %*d %s", l.name, name, l.number, r.added+r.removed, bar), " "))
}
