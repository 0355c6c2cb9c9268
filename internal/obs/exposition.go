package obs

import (
	"bytes"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
)

// ContentType is the media type of the Prometheus text exposition format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// page is a text in the Prometheus exposition format. Metrics are in the order of the
// calls, the samples of a metric in a fixed order, so that two pages differ only
// in numbers.
type page struct{ buf bytes.Buffer }

// family writes the help and type lines with which a metric begins.
func (p *page) family(name, kind, help string) {
	p.buf.WriteString("# HELP " + name + " " + helpEscapes.Replace(help) + "\n# TYPE " + name + " " + kind + "\n")
}

// sample writes one line with a value of a metric; labels are names and values in turn.
func (p *page) sample(name string, value float64, labels ...string) {
	p.buf.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		p.buf.WriteByte(",{"[b2i(i == 0)])
		p.buf.WriteString(labels[i] + `="` + labelEscapes.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD")) + `"`)
	}
	if len(labels) > 1 {
		p.buf.WriteByte('}')
	}
	p.buf.WriteByte(' ')
	p.buf.Write(strconv.AppendFloat(p.buf.AvailableBuffer(), value, 'g', -1, 64))
	p.buf.WriteByte('\n')
}

// gauge writes a gauge metric with one sample.
func (p *page) gauge(name, help string, value float64) {
	p.family(name, "gauge", help)
	p.sample(name, value)
}

// counter writes a counter metric with one sample.
func (p *page) counter(name, help string, n *atomic.Int64) {
	p.family(name, "counter", help)
	p.sample(name, float64(n.Load()))
}

//nolint:gochecknoglobals // tables
var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// other is the label value for all values that are not known beforehand, so that a text that a
// caller, a model or a provider chose never becomes a label.
const other = "other"

// label is a label and the values it can have.
type label struct {
	name   string
	values []string
}

// bounded returns a label with the given values and the value other.
func bounded(name string, values ...string) label {
	return label{name, append(values[:len(values):len(values)], other)}
}

func (l label) index(value string) int {
	for i, v := range l.values {
		if v == value {
			return i
		}
	}
	return len(l.values) - 1
}

// table is a counter by two labels. All its cells exist from the start, so that an increment
// needs no lock.
type table struct {
	rows, cols label
	n          []atomic.Int64
}

func newTable(rows, cols label) *table {
	return &table{rows, cols, make([]atomic.Int64, len(rows.values)*len(cols.values))}
}

// add adds by to a cell. by may be a number that a model provider reported; holdfast.Sum keeps the
// counter from falling, whatever the number is.
func (t *table) add(row, col string, by int64) {
	n := &t.n[t.rows.index(row)*len(t.cols.values)+t.cols.index(col)]
	for was := n.Load(); !n.CompareAndSwap(was, holdfast.Sum(was, by)); was = n.Load() {
	}
}

// list is a counter by one label.
type list struct {
	label
	n []atomic.Int64
}

func newList(l label) *list { return &list{l, make([]atomic.Int64, len(l.values))} }

func (l *list) add(value string) { l.n[l.index(value)].Add(1) }

func (p *page) table(name, help string, t *table) {
	p.family(name, "counter", help)
	for i := range t.n {
		row, col := t.rows.values[i/len(t.cols.values)], t.cols.values[i%len(t.cols.values)]
		p.sample(name, float64(t.n[i].Load()), t.rows.name, row, t.cols.name, col)
	}
}

func (p *page) list(name, help string, l *list) {
	p.family(name, "counter", help)
	for i := range l.n {
		p.sample(name, float64(l.n[i].Load()), l.name, l.values[i])
	}
}

// histogram counts durations in a few buckets.
type histogram struct {
	bounds []float64 // upper bounds in seconds, ascending
	n      []atomic.Int64
	micros atomic.Int64
}

func newHistogram(bounds ...float64) *histogram {
	return &histogram{bounds: bounds, n: make([]atomic.Int64, len(bounds)+1)}
}

func (h *histogram) observe(seconds float64) {
	i := 0
	for i < len(h.bounds) && seconds > h.bounds[i] {
		i++
	}
	h.n[i].Add(1)
	h.micros.Add(int64(seconds * 1e6))
}

func (p *page) histogram(name, help string, h *histogram) {
	p.family(name, "histogram", help)
	var sum int64
	for i := range h.n {
		bound := "+Inf"
		if i < len(h.bounds) {
			bound = strconv.FormatFloat(h.bounds[i], 'g', -1, 64)
		}
		sum += h.n[i].Load()
		p.sample(name+"_bucket", float64(sum), "le", bound)
	}
	p.sample(name+"_sum", float64(h.micros.Load())/1e6)
	p.sample(name+"_count", float64(sum))
}
