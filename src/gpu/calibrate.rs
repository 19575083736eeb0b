//! Measures a machine, part by part: quick in about two minutes, or in full.
//!
//! Each part runs in workers of its own, so that one that fails or hangs costs
//! its own rows only and becomes a note.

use std::time::Instant;

use crate::error::Result;
use crate::gpu::SILENCE;
use crate::gpu::answer::Request;
use crate::gpu::check::CheckOptions;
use crate::gpu::collectives::OursOptions;
use crate::gpu::element::Element;
use crate::gpu::implementation::Implementation;
use crate::gpu::library;
use crate::gpu::nccl_series::NcclOptions;
use crate::gpu::parts::Calibration;
use crate::gpu::parts::Event;
use crate::gpu::parts::Options;
use crate::gpu::parts::Part;
use crate::gpu::parts::Stopped;
use crate::gpu::settings;
use crate::gpu::settings::Setting;
use crate::gpu::worker;

/// Measures the machine, telling what happens.
///
/// # Errors
/// When not even `detect` works, or a listener fails; parts that fail become notes.
pub fn calibrate(options: &Options, tell: &mut dyn FnMut(Event<'_>) -> Result<()>) -> Result<Calibration> {
    let parts: Vec<Part> = match (options.parts.is_empty(), options.full) {
        (false, _) => Part::ALL.into_iter().filter(|p| options.parts.contains(p)).collect(),
        (true, true) => Part::ALL.to_vec(),
        (true, false) => Part::QUICK.to_vec(),
    };
    tell(Event::Begins(0, parts.len() + 1, "looking at the machine"))?;
    let mut run = Run { options, gpus: 1, multiprocessors: 32, found: Calibration::default(), begun: Instant::now() };
    run.ask(&Request::Detect, &[], &mut |_| Ok(()))?;
    if let Some(detected) = &run.found.detected {
        run.gpus = detected.gpus.len().max(1);
        run.multiprocessors = detected.gpus.first().map_or(32, |g| g.multiprocessors);
    }
    tell(Event::Ended(&run.found))?;
    for (at, part) in parts.iter().enumerate() {
        if run.is_late(part.name()) {
            continue;
        }
        let started = Instant::now();
        let rows = run.rows();
        let place = (at + 1, parts.len() + 1);
        tell(Event::Begins(place.0, place.1, part.name()))?;
        run.part(*part, place, tell)?;
        if run.rows() == rows {
            run.found.failed.push(*part);
        }
        run.found.seconds.push((*part, started.elapsed().as_secs_f64()));
        tell(Event::Ended(&run.found))?;
    }
    Ok(run.found)
}

type Tell<'a> = &'a mut dyn FnMut(Event<'_>) -> Result<()>;

struct Run<'a> {
    options: &'a Options,
    gpus: usize,
    multiprocessors: u32,
    found: Calibration,
    begun: Instant,
}

impl Run<'_> {
    /// Results so far, to see whether a part gave any.
    fn rows(&self) -> usize {
        let found = &self.found;
        let stopped = usize::from(found.stopped.is_some());
        found.observations.len() + found.flows.len() + found.micro.len() + found.checks.len() + stopped
    }

    /// Whether the time given is over; then a note says that `what` was left out.
    fn is_late(&mut self, what: &str) -> bool {
        let late = self.options.seconds_max.is_some_and(|most| self.begun.elapsed().as_secs() >= most);
        if late {
            self.found.notes.push(format!("left out, the time given is over: {what}"));
        }
        late
    }

    fn sharing(&self, ranks: u32) -> bool {
        ranks as usize > self.gpus
    }

    /// Asks a worker and keeps its answers.
    fn ask(&mut self, request: &Request, environment: &[(String, String)], tell: Tell<'_>) -> Result<()> {
        let found = &mut self.found;
        let mut heard = Ok(());
        worker::ask(request, environment, SILENCE, &mut |answer| {
            found.put(answer);
            if heard.is_ok() {
                heard = tell(Event::Grew(found));
            }
        })?;
        heard
    }

    /// Asks a worker; a fault becomes a note.
    fn try_ask(&mut self, what: &str, request: &Request, environment: &[(String, String)], tell: Tell<'_>) {
        if let Err(fault) = self.ask(request, environment, tell) {
            self.found.notes.push(format!("{what}: {fault}"));
        }
    }

    fn part(&mut self, part: Part, place: (usize, usize), tell: Tell<'_>) -> Result<()> {
        let ranks = self.ranks();
        let most = ranks.iter().copied().max().unwrap_or(2);
        let plain = settings::environment(self.sharing(most));
        match part {
            Part::Micro => self.try_ask("micro", &Request::Micro { ordinal: 0 }, &plain, tell),
            Part::Skew if self.gpus == 1 => self.try_ask("skew", &Request::Skew { ranks }, &plain, tell),
            Part::Green if self.gpus == 1 => self.try_ask("green", &Request::Green { ranks: most }, &plain, tell),
            Part::Skew | Part::Green => self.found.notes.push(format!("{}: ranks share no GPU here", part.name())),
            Part::Flows => self.try_ask("flows", &Request::Flows { machine: self.options.machine.clone() }, &plain, tell),
            Part::Check => self.try_ask("check", &Request::Check(self.check_options(&ranks)), &plain, tell),
            Part::Stop => self.stop(most, &plain),
            Part::Ours | Part::Host => {
                for count in ranks {
                    if self.is_late(&format!("{}, {count} ranks", part.name())) {
                        continue;
                    }
                    tell(Event::Begins(place.0, place.1, &format!("{}, {count} ranks", part.name())))?;
                    let request = Request::Ours(self.ours_options(part, count));
                    self.try_ask(part.name(), &request, &settings::environment(self.sharing(count)), tell);
                }
            }
            Part::Nccl => {
                for count in ranks {
                    let most = self.channels_most(count);
                    let mut all = vec![if self.options.own_choice_only {
                        Setting::choice("its own choice", 0, most)
                    } else {
                        settings::versus(most)
                    }];
                    if self.options.full {
                        all.push(settings::every_choice(most, &self.options.channels));
                    }
                    self.nccl(&all, count, &self.sizes(), &[], place, tell)?;
                }
            }
            Part::Versus => {
                let beside = [
                    Implementation::OneShotPushLl,
                    Implementation::SymmetricLl,
                    Implementation::TwoShotLl,
                    Implementation::HierarchicalLl,
                    Implementation::RingLl,
                ];
                let setting = settings::versus(self.channels_most(most));
                self.nccl(&[setting], most, &self.given_sizes(&CASE_SIZES), &beside, place, tell)?;
            }
            Part::Variables => {
                // The proposal's known-good state has 16 channels.
                let channels = self.multiprocessors.checked_div(self.sharing_count(most)).unwrap_or(16).clamp(1, 16);
                let sizes = self.given_sizes(&[256, 4096, 14_336, 43_008, 57_344, 262_144, 1 << 20, 4 << 20]);
                self.nccl(&settings::four_variables(channels), most, &sizes, &[], place, tell)?;
            }
        }
        Ok(())
    }

    fn nccl(
        &mut self,
        all: &[Setting],
        ranks: u32,
        sizes: &[u64],
        beside: &[Implementation],
        place: (usize, usize),
        tell: Tell<'_>,
    ) -> Result<()> {
        let folder = library::cache_folder();
        let _ = std::fs::create_dir_all(&folder);
        let debug_file = folder.join(format!("nccl-{}.log", std::process::id()));
        let text = |n: u32| if n == 0 { String::new() } else { n.to_string() };
        // Set by the user for all of NCCL's processes.
        let inherited = |name: &str| std::env::var(name).unwrap_or_default();
        for setting in all {
            if self.is_late(&format!("NCCL, {ranks} ranks: {}", setting.name)) {
                continue;
            }
            tell(Event::Begins(place.0, place.1, &format!("NCCL, {ranks} ranks: {}", setting.name)))?;
            let request = Request::Nccl(NcclOptions {
                machine: self.options.machine.clone(),
                ranks,
                devices: usize::MAX,
                element: self.options.element,
                sizes: sizes.to_vec(),
                forced: setting.forced.clone(),
                channels: setting.channels_text(),
                threads: if setting.threads == 0 { inherited("NCCL_NTHREADS") } else { text(setting.threads) },
                buffer_bytes: if setting.buffer_bytes == 0 { inherited("NCCL_BUFFSIZE") } else { text(setting.buffer_bytes) },
                channels_min: 0,
                channels_max: 0,
                beside: beside.to_vec(),
                eager: self.options.full && beside.is_empty() && setting.forced.len() <= 3,
                debug_file: Some(debug_file.clone()),
            });
            let environment = setting.environment(self.sharing(ranks), &debug_file);
            self.try_ask(&format!("NCCL, {ranks} ranks, {}", setting.name), &request, &environment, tell);
            let _ = std::fs::remove_file(&debug_file);
        }
        Ok(())
    }

    /// A rank stops, and the others must say so. The clock is ours.
    fn stop(&mut self, ranks: u32, environment: &[(String, String)]) {
        let started = Instant::now();
        let outcome = worker::ask(&Request::Stop { ranks }, environment, SILENCE, &mut |_| ());
        match outcome {
            Err(fault) if fault.code == "gpu-stuck" => {
                self.found.stopped = Some(Stopped { ranks, seconds: started.elapsed().as_secs_f64(), report: fault.message.clone() });
            }
            Err(fault) => self.found.notes.push(format!("stop: {fault}")),
            Ok(()) => self.found.notes.push("stop: a rank stopped and nobody noticed".to_owned()),
        }
    }

    fn ours_options(&self, part: Part, ranks: u32) -> OursOptions {
        let host = part == Part::Host;
        let through_host = vec![Implementation::HostStaged, Implementation::HostRingLl];
        OursOptions {
            machine: self.options.machine.clone(),
            ranks: vec![ranks],
            devices: usize::MAX,
            element: self.options.element,
            sizes: if host { self.given_sizes(&[256, 4096, 14_336, 43_008, 57_344, 262_144, 1 << 20, 4 << 20]) } else { self.sizes() },
            implementations: if host { through_host } else { Vec::new() },
            tune: self.options.full || host,
            eager: self.options.full && !host,
            host_bytes_max: 4 << 20,
        }
    }

    fn check_options(&self, ranks: &[u32]) -> CheckOptions {
        let alone = self.options.parts == [Part::Check];
        let most = ranks.iter().copied().max().unwrap_or(2);
        CheckOptions {
            ranks: if alone || self.options.full { ranks.to_vec() } else { vec![most] },
            devices: usize::MAX,
            elements: vec![Element::Bf16, Element::F16],
            sizes: self.given_sizes(&[42, 43_008, 1 << 20]),
            implementations: Vec::new(),
            soak_calls: self.options.soak_calls,
            soak_sizes: vec![42, 43_008, 1 << 20],
            calls: self.options.calls,
            seed: self.options.seed,
            host_bytes_max: 4 << 20,
            timeout_ms: self.options.timeout_ms,
        }
    }

    /// Two ranks at least; several rank counts when they share a GPU.
    fn ranks(&self) -> Vec<u32> {
        match u32::try_from(self.gpus) {
            _ if !self.options.ranks.is_empty() => self.options.ranks.clone(),
            Ok(1) | Err(_) => vec![2, 4, 8],
            Ok(gpus) if self.options.full => (2..=gpus.min(16)).filter(|n| n.is_power_of_two() || *n == gpus).collect(),
            Ok(gpus) => vec![gpus.min(16)],
        }
    }

    fn given_sizes(&self, otherwise: &[u64]) -> Vec<u64> {
        if self.options.sizes.is_empty() { otherwise.to_vec() } else { self.options.sizes.clone() }
    }

    fn sizes(&self) -> Vec<u64> {
        self.given_sizes(if self.options.full {
            &[256, 1024, 4096, 8192, 14_336, 28_672, 43_008, 57_344, 65_536, 131_072, 262_144, 1 << 20, 4 << 20]
        } else {
            &[256, 4096, 14_336, 43_008, 57_344, 262_144, 1 << 20]
        })
    }

    fn sharing_count(&self, ranks: u32) -> u32 {
        ranks.div_ceil(u32::try_from(self.gpus).unwrap_or(1).max(1))
    }

    /// Ranks that share a GPU must not take more channels than they have
    /// multiprocessors for; 0 where they do not share one.
    fn channels_most(&self, ranks: u32) -> u32 {
        if self.sharing(ranks) { (self.multiprocessors / self.sharing_count(ranks) / 2).clamp(1, 8) } else { 0 }
    }
}

/// One, three and four tokens of the case.
const CASE_SIZES: [u64; 3] = [14_336, 43_008, 57_344];
