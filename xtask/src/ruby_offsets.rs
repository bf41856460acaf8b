//! `cargo xtask interpreter-offsets ruby FILE...`: where fields of CRuby's structures lie, from debug information.
//!
//! Files are linked ELF files with DWARF: a libruby built with `-g`, its separate debug file, or object files of the same source and
//! configuration linked with `ld -shared`. What a version does not have is left out; what every version needs must be there.
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, EndianArcSlice, LittleEndian, Reader, Unit, UnitOffset,
};
use object::{Object, ObjectSection};

type Bytes = EndianArcSlice<LittleEndian>;

/// Key, structure, and path of fields in it. Of several with one key the first that is there counts.
const FIELDS: &[(&str, &str, &str)] = &[
    ("ec.vm_stack", "rb_execution_context_struct", "vm_stack"),
    ("ec.vm_stack_size", "rb_execution_context_struct", "vm_stack_size"),
    ("ec.cfp", "rb_execution_context_struct", "cfp"),
    ("ec.thread", "rb_execution_context_struct", "thread_ptr"),
    ("ec.machine.stack_start", "rb_execution_context_struct", "machine.stack_start"),
    ("ec.machine.stack_maxsize", "rb_execution_context_struct", "machine.stack_maxsize"),
    ("cfp.pc", "rb_control_frame_struct", "pc"),
    ("cfp.iseq", "rb_control_frame_struct", "iseq"),
    ("cfp.ep", "rb_control_frame_struct", "ep"),
    ("vm.objspace", "rb_vm_struct", "objspace"),
    ("vm.objspace", "rb_vm_struct", "gc.objspace"),
    ("objspace.flags", "rb_objspace", "flags"),
    ("thread.vm", "rb_thread_struct", "vm"),
    ("thread.ractor", "rb_thread_struct", "ractor"),
    ("ractor.running_ec", "rb_ractor_struct", "threads.running_ec"),
    ("iseq.body", "rb_iseq_struct", "body"),
    ("body.iseq_size", "rb_iseq_constant_body", "iseq_size"),
    ("body.iseq_encoded", "rb_iseq_constant_body", "iseq_encoded"),
    ("body.pathobj", "rb_iseq_constant_body", "location.pathobj"),
    ("body.base_label", "rb_iseq_constant_body", "location.base_label"),
    ("body.label", "rb_iseq_constant_body", "location.label"),
    ("body.first_lineno", "rb_iseq_constant_body", "location.first_lineno"),
    ("body.insns_info", "rb_iseq_constant_body", "insns_info.body"),
    ("body.insns_positions", "rb_iseq_constant_body", "insns_info.positions"),
    ("body.insns_size", "rb_iseq_constant_body", "insns_info.size"),
    ("body.insns_index", "rb_iseq_constant_body", "insns_info.succ_index_table"),
    ("body.local_iseq", "rb_iseq_constant_body", "local_iseq"),
    ("insn_info.line_no", "iseq_insn_info_entry", "line_no"),
    ("index.blocks", "succ_index_table", "succ_part"),
    ("block.rank", "succ_dict_block", "rank"),
    ("block.small_ranks", "succ_dict_block", "small_block_ranks"),
    ("block.bits", "succ_dict_block", "bits"),
    ("method_entry.def", "rb_callable_method_entry_struct", "def"),
    ("method_entry.called_id", "rb_callable_method_entry_struct", "called_id"),
    ("method_entry.owner", "rb_callable_method_entry_struct", "owner"),
    ("definition.body", "rb_method_definition_struct", "body"),
    ("definition.iseq", "rb_method_definition_struct", "body.iseq.iseqptr"),
    ("definition.original_id", "rb_method_definition_struct", "original_id"),
    ("string.length", "RString", "len"),
    ("string.length", "RString", "as.heap.len"),
    ("string.pointer", "RString", "as.heap.ptr"),
    ("string.embedded", "RString", "as.embed.ary"),
    ("string.embedded", "RString", "as.ary"),
    ("array.length", "RArray", "as.heap.len"),
    ("array.pointer", "RArray", "as.heap.ptr"),
    ("array.embedded", "RArray", "as.ary"),
    // Since 3.2 the extension follows the class itself; before, it is elsewhere.
    ("class.extension_pointer", "RClass", "ptr"),
    ("extension.classpath", "rb_classext_struct", "classpath"),
    ("extension.attached", "rb_classext_struct", "as.singleton_class.attached_object"),
    ("extension.variables", "rb_classext_struct", "iv_tbl"),
    ("symbols.ids", "rb_symbols_t", "ids"),
    ("st_table.entries", "st_table", "entries"),
    ("st_table.entries_start", "st_table", "entries_start"),
    ("st_table.entries_bound", "st_table", "entries_bound"),
    ("st_table.num_entries", "st_table", "num_entries"),
    ("st_table_entry.key", "st_table_entry", "key"),
    ("st_table_entry.record", "st_table_entry", "record"),
];

const SIZES: &[(&str, &str)] = &[
    ("cfp.size", "rb_control_frame_struct"),
    ("class.size", "RClass"),
    ("insn_info.size", "iseq_insn_info_entry"),
    ("block.size", "succ_dict_block"),
    ("st_table_entry.size", "st_table_entry"),
];

/// Sizes of fields: some have had two types.
const FIELD_SIZES: &[(&str, &str, &str)] =
    &[("body.first_lineno_size", "rb_iseq_constant_body", "location.first_lineno")];

/// Bit fields, as masks in the word that `objspace.flags` begins.
const BITS: &[(&str, &str, &str)] = &[("objspace.during_gc", "rb_objspace", "flags.during_gc")];

/// Constants: what the kernel side and the reader of names are compiled with is compared with these.
const CONSTANTS: &[&str] = &[
    "VM_FRAME_MAGIC_METHOD",
    "VM_FRAME_MAGIC_CFUNC",
    "VM_FRAME_MAGIC_DUMMY",
    "VM_FRAME_MAGIC_MASK",
    "VM_FRAME_FLAG_FINISH",
    "VM_FRAME_FLAG_CFRAME",
    "VM_METHOD_TYPE_ISEQ",
    "VM_METHOD_TYPE_BMETHOD",
    "imemo_svar",
    "imemo_ment",
    "tLAST_OP_ID",
    "ID_ENTRY_SIZE",
    "RUBY_ID_SCOPE_SHIFT",
    "RSTRING_NOEMBED",
    "RSTRING_EMBED_LEN_MASK",
    "RSTRING_EMBED_LEN_SHIFT",
    "RARRAY_EMBED_FLAG",
    "RARRAY_EMBED_LEN_MASK",
    "RARRAY_EMBED_LEN_SHIFT",
    "RUBY_T_CLASS",
    "RUBY_T_MODULE",
    "RUBY_T_ICLASS",
    "RUBY_T_STRING",
    "RUBY_T_ARRAY",
    "RUBY_T_IMEMO",
    "RUBY_T_MASK",
    "RUBY_FL_USHIFT",
    "RUBY_FL_SINGLETON",
];

/// A layout as lightfoot reads it: language, version, offsets.
///
/// # Errors
/// A file cannot be read, or something that every version has is in none of the files.
pub fn layout(files: &[PathBuf], version: &str, source: &str) -> anyhow::Result<serde_json::Value> {
    let mut offsets = BTreeMap::new();
    for file in files {
        let program = Program::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        program.collect(&mut offsets)?;
    }
    for needed in
        ["ec.cfp", "cfp.size", "iseq.body", "method_entry.def", "string.embedded", "VM_FRAME_FLAG_FINISH"]
    {
        if !offsets.contains_key(needed) {
            bail!("{needed} is in none of the files: is this CRuby with debug information?");
        }
    }
    Ok(serde_json::json!({ "language": "ruby", "version": version, "source": source, "offsets": offsets }))
}

pub(crate) struct Program {
    dwarf: Dwarf<Bytes>,
    units: Vec<Unit<Bytes>>,
    /// Name of a structure -> where it is defined: unit, entry.
    pub(crate) structures: HashMap<String, (usize, UnitOffset)>,
    pub(crate) constants: HashMap<String, u64>,
}

/// A field's place.
pub(crate) struct Place {
    pub(crate) offset: u64,
    /// Bytes; of a bit field its bits.
    size: u64,
    pub(crate) bit: Option<u64>,
}

impl Program {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Program> {
        let bytes = std::fs::read(path)?;
        let file = object::File::parse(&*bytes)?;
        let section = |id: gimli::SectionId| -> Result<Bytes, gimli::Error> {
            let data = file.section_by_name(id.name()).and_then(|section| section.uncompressed_data().ok());
            Ok(EndianArcSlice::new(data.unwrap_or_default().into_owned().into(), LittleEndian))
        };
        let dwarf = Dwarf::load(section)?;
        let mut program =
            Program { dwarf, units: Vec::new(), structures: HashMap::new(), constants: HashMap::new() };
        let mut headers = program.dwarf.units();
        while let Some(header) = headers.next()? {
            let unit = program.dwarf.unit(header)?;
            program.index(unit)?;
        }
        Ok(program)
    }

    fn index(&mut self, unit: Unit<Bytes>) -> anyhow::Result<()> {
        let count = self.units.len();
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            let Some(name) = entry.attr_value(gimli::DW_AT_name) else { continue };
            let name = || -> anyhow::Result<String> {
                Ok(self.dwarf.attr_string(&unit, name.clone())?.to_string_lossy()?.into_owned())
            };
            match entry.tag() {
                gimli::DW_TAG_structure_type if entry.attr_value(gimli::DW_AT_byte_size).is_some() => {
                    self.structures.entry(name()?).or_insert((count, entry.offset()));
                }
                // `typedef struct {...} rb_symbols_t`: the structure itself has no name.
                gimli::DW_TAG_typedef => {
                    if let Some(AttributeValue::UnitRef(target)) = entry.attr_value(gimli::DW_AT_type) {
                        let target = unit.entry(target)?;
                        if target.tag() == gimli::DW_TAG_structure_type
                            && target.attr_value(gimli::DW_AT_name).is_none()
                        {
                            self.structures.entry(name()?).or_insert((count, target.offset()));
                        }
                    }
                }
                gimli::DW_TAG_enumerator => {
                    // All that are asked for are positive, and short forms do not say whether they are signed.
                    if let Some(value) = number(entry, gimli::DW_AT_const_value) {
                        self.constants.entry(name()?).or_insert(value);
                    }
                }
                _ => {}
            }
        }
        self.units.push(unit);
        Ok(())
    }

    fn collect(&self, offsets: &mut BTreeMap<String, u32>) -> anyhow::Result<()> {
        for (key, structure, path) in FIELDS {
            if let Some(place) = self.field(structure, path)? {
                offsets.entry((*key).to_owned()).or_insert(u32::try_from(place.offset)?);
            }
        }
        for (key, structure) in SIZES {
            if let Some(&(unit, entry)) = self.structures.get(*structure) {
                let size = number(&self.units[unit].entry(entry)?, gimli::DW_AT_byte_size);
                offsets
                    .entry((*key).to_owned())
                    .or_insert(u32::try_from(size.ok_or_else(|| anyhow!("no size"))?)?);
            }
        }
        for (key, structure, path) in FIELD_SIZES {
            if let Some(place) = self.field(structure, path)? {
                offsets.entry((*key).to_owned()).or_insert(u32::try_from(place.size)?);
            }
        }
        for (key, structure, path) in BITS {
            if let Some(Place { bit: Some(bit), size: 1, .. }) = self.field(structure, path)? {
                offsets.entry((*key).to_owned()).or_insert(1 << bit);
            }
        }
        for name in CONSTANTS {
            if let Some(value) = self.constants.get(*name) {
                offsets.entry((*name).to_owned()).or_insert(u32::try_from(*value)?);
            }
        }
        Ok(())
    }

    /// Bytes of a structure. None if there is no such structure.
    pub(crate) fn size(&self, structure: &str) -> anyhow::Result<Option<u64>> {
        let Some(&(unit, entry)) = self.structures.get(structure) else { return Ok(None) };
        Ok(number(&self.units[unit].entry(entry)?, gimli::DW_AT_byte_size))
    }

    /// `a.b` in a structure. None if there is no such structure or field.
    pub(crate) fn field(&self, structure: &str, path: &str) -> anyhow::Result<Option<Place>> {
        let Some(&(unit, mut entry)) = self.structures.get(structure) else { return Ok(None) };
        let unit = &self.units[unit];
        let mut place = Place { offset: 0, size: 0, bit: None };
        for name in path.split('.') {
            let Some((inner, target)) = self.member(unit, entry, name)? else { return Ok(None) };
            place = Place { offset: place.offset + inner.offset, ..inner };
            entry = target;
        }
        Ok(Some(place))
    }

    /// A field of the structure or union at `entry`: where, and its type.
    fn member(
        &self,
        unit: &Unit<Bytes>,
        entry: UnitOffset,
        wanted: &str,
    ) -> anyhow::Result<Option<(Place, UnitOffset)>> {
        let mut tree = unit.entries_tree(Some(entry))?;
        let mut children = tree.root()?.children();
        while let Some(child) = children.next()? {
            let child = child.entry();
            if child.tag() != gimli::DW_TAG_member {
                continue;
            }
            let Some(AttributeValue::UnitRef(target)) = child.attr_value(gimli::DW_AT_type) else { continue };
            let target = resolve(unit, target)?;
            let offset = number(child, gimli::DW_AT_data_member_location).unwrap_or(0);
            let Some(name) = child.attr_value(gimli::DW_AT_name) else {
                // Fields of an anonymous structure or union count as the outer one's.
                if let Some((inner, target)) = self.member(unit, target, wanted)? {
                    return Ok(Some((Place { offset: offset + inner.offset, ..inner }, target)));
                }
                continue;
            };
            if self.dwarf.attr_string(unit, name)?.to_string_lossy()? != wanted {
                continue;
            }
            let bits = number(child, gimli::DW_AT_bit_size);
            let size =
                bits.or_else(|| number(&unit.entry(target).ok()?, gimli::DW_AT_byte_size)).unwrap_or(8);
            return Ok(Some((
                Place { offset, size, bit: number(child, gimli::DW_AT_data_bit_offset) },
                target,
            )));
        }
        Ok(None)
    }
}

/// The type behind typedefs and qualifiers.
fn resolve(unit: &Unit<Bytes>, mut at: UnitOffset) -> anyhow::Result<UnitOffset> {
    for _ in 0..16 {
        let entry = unit.entry(at)?;
        match entry.tag() {
            gimli::DW_TAG_typedef | gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type => {
                let Some(AttributeValue::UnitRef(next)) = entry.attr_value(gimli::DW_AT_type) else { break };
                at = next;
            }
            _ => break,
        }
    }
    Ok(at)
}

fn number(entry: &DebuggingInformationEntry<Bytes>, attribute: gimli::DwAt) -> Option<u64> {
    entry.attr(attribute).and_then(|value| value.udata_value())
}
