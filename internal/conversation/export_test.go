package conversation

// Size is how many conversations are kept, and about how many bytes of them.
func (k *Kept) Size() (int, int64) { return len(k.byID), k.bytes }
